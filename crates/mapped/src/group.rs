//! How much memory the control group of this process may have (Linux).
//!
//! Inside a container the system promises memory that it does not give: whoever uses more
//! than the group's limit is killed. So who is about to use much asks for the limit.

use std::fs;
use std::path::Path;

/// Where control groups are.
const ROOT: &str = "/sys/fs/cgroup";

/// The least limit of the process's group and those above it, in bytes, if there is one.
pub(crate) fn memory_limit() -> Option<u64> {
    limit_of(&fs::read_to_string("/proc/self/cgroup").ok()?, Path::new(ROOT))
}

/// The same from what `/proc/self/cgroup` says: a line for each hierarchy, with number,
/// controllers and path. Version 2 has one, with number 0 and all controllers.
fn limit_of(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        match number {
            "0" => least_up(root, path, "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                least_up(&root.join("memory"), path, "memory.limit_in_bytes")
            }
            _ => None,
        }
    });
    limits.min()
}

/// Of a group and all above it; a container may see its own group as the root.
fn least_up(root: &Path, path: &str, file: &str) -> Option<u64> {
    let group = Path::new(path.trim_start_matches('/'));
    let limit = |group: &Path| fs::read_to_string(root.join(group).join(file)).ok()?.trim().parse().ok();
    group.ancestors().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_on_the_way_up_holds() {
        let root = std::env::temp_dir().join(format!("lookalike-groups-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/b/memory.max", "max\n");
        write("a/memory.max", "5000\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/x/memory.limit_in_bytes", "7000\n");
        assert_eq!(limit_of("0::/a/b\n", &root), Some(5000));
        assert_eq!(limit_of("0::/elsewhere\n", &root), None);
        assert_eq!(limit_of("4:memory:/x/gone\n1:cpu:/x\n0::/\n", &root), Some(7000));
        assert_eq!(limit_of("4:cpu,memory:/\n", &root), Some(9_223_372_036_854_771_712));
        assert_eq!(limit_of("memory\n\n", &root), None);
        fs::remove_dir_all(root).unwrap();
    }
}
