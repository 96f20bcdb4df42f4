//! How much memory this process took at most.

const STATUS: &str = "/proc/self/status";
const CLEAR: &str = "/proc/self/clear_refs";
/// Written to [`CLEAR`], it makes the kernel forget the peak (proc(5)).
const FORGET_PEAK: &str = "5";

/// The most memory that was resident since a moment, where the system tells.
pub(crate) struct Peak {
    is_reset: bool,
}

impl Peak {
    /// Forgets what was before.
    pub(crate) fn reset() -> Self {
        Self { is_reset: std::fs::write(CLEAR, FORGET_PEAK).is_ok() }
    }

    /// The peak; nothing if the system does not tell, or could not forget.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(STATUS).ok()?;
        high_water_mark(&status).filter(|_| self.is_reset)
    }
}

fn high_water_mark(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_and_read() {
        let status = "Name:\tlookalike\nVmPeak:\t  9000 kB\nVmHWM:\t    1234 kB\nVmRSS:\t  1000 kB\n";
        assert_eq!(high_water_mark(status), Some(1234 * 1024));
        assert_eq!(high_water_mark("VmHWM:\tmany kB\n"), None);
        assert_eq!(high_water_mark(""), None);
    }
}
