use super::*;

fn replace_directory(
    directory: &Path,
    write: impl FnOnce(&Path) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let replacement = Replacement::begin(directory)?;
    write(&replacement.folder())?;
    replacement.finish()
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    disk::write(path, bytes).map_err(ModelError::io(path))
}

const CONFIG: &str =
    r#"{"format": "lookalike model", "files": [{"name": "weights", "bytes": 3, "crc32": 0}]}"#;

/// Writes a directory that looks like a model.
fn write_model(weights: &'static str) -> impl FnOnce(&Path) -> Result<(), ModelError> {
    move |folder| {
        write_file(&folder.join("weights"), weights.as_bytes())?;
        write_file(&folder.join(CONFIG_FILE), CONFIG.as_bytes())
    }
}

/// A folder with a model in `m`.
fn with_model() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m");
    replace_directory(&model, write_model("old")).unwrap();
    (folder, model)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn what_is_not_ours_stays() {
    let (folder, model) = with_model();
    fs::create_dir_all(model.join("src/chapter")).unwrap();
    fs::write(model.join("src/chapter/thesis.tex"), "my life's work").unwrap();
    fs::write(model.join("README"), "mine").unwrap();
    // Files whose names ours have now and had not before.
    fs::write(model.join("labels.txt"), "my labels").unwrap();
    fs::write(model.join("labels.txt.old"), "my older labels").unwrap();
    replace_directory(&model, |folder| {
        write_file(&folder.join("labels.txt"), b"labels")?;
        write_model("new")(folder)
    })
    .unwrap();
    assert_eq!(read(&model.join("weights")), "new");
    assert_eq!(read(&model.join("src/chapter/thesis.tex")), "my life's work");
    assert_eq!(read(&model.join("README")), "mine");
    assert_eq!(read(&model.join("labels.txt")), "labels");
    assert_eq!(read(&model.join("labels.txt.old")), "my older labels");
    assert_eq!(read(&model.join("labels.txt.old-2")), "my labels");
    assert_eq!(names(folder.path()), ["m"]);
}

#[test]
fn only_a_model_or_an_empty_folder_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("project");
    fs::create_dir(&project).unwrap();
    check_destination(&project).unwrap();
    fs::write(project.join("thesis.tex"), "my life's work").unwrap();
    for config in
        ["{}", "", "[1]", r#"{"format": "other"}"#, r#"{"format": 1}"#, CONFIG.trim_end_matches('}')]
    {
        fs::write(project.join(CONFIG_FILE), config).unwrap();
        let is_refused = |result| matches!(result, Err(ModelError::WouldOverwrite { .. }));
        assert!(is_refused(check_destination(&project)), "{config}");
        assert!(is_refused(replace_directory(&project, write_model("new"))), "{config}");
        assert_eq!(names(&project), [CONFIG_FILE, "thesis.tex"]);
    }
    let file = project.join("thesis.tex");
    for (unsuitable, why) in
        [(file.as_path(), "no folder"), (Path::new("/"), "name"), (Path::new(".."), "name")]
    {
        for result in [check_destination(unsuitable), replace_directory(unsuitable, write_model("new"))] {
            assert!(result.unwrap_err().to_string().contains(why), "{unsuitable:?}");
        }
    }
    let within_a_file = file.join("m");
    assert!(matches!(check_destination(&within_a_file), Err(ModelError::Io { .. })));
    assert_eq!(read(&file), "my life's work");
    fs::create_dir(folder.path().join("empty")).unwrap();
    replace_directory(&folder.path().join("empty"), write_model("new")).unwrap();
    replace_directory(&folder.path().join("a/b/c"), write_model("new")).unwrap();
    assert_eq!(names(folder.path()), ["a", "empty", "project"]);
}

#[test]
fn a_check_leaves_nothing() {
    let (folder, model) = with_model();
    check_destination(&model).unwrap();
    check_destination(&folder.path().join("a/b/c")).unwrap();
    assert_eq!(names(folder.path()), ["m"]);
    assert_eq!(names(&model), [CONFIG_FILE, "weights"]);
}

#[test]
fn a_failed_write_leaves_the_old_model_and_nothing_else() {
    let (folder, model) = with_model();
    let failed = replace_directory(&model, |folder| {
        write_file(&folder.join("weights"), b"half")?;
        Err(ModelError::io(folder)(std::io::Error::other("no space")))
    });
    assert!(failed.unwrap_err().to_string().contains("no space"));
    assert_eq!((read(&model.join("weights")), names(folder.path())), ("old".into(), vec!["m".into()]));
}

#[cfg(unix)]
#[test]
fn links_stay_links_and_modes_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let (folder, model) = with_model();
    fs::create_dir(folder.path().join("usual")).unwrap();
    fs::write(folder.path().join("usual/file"), "").unwrap();
    assert_eq!(mode(&model), mode(&folder.path().join("usual")));
    assert_eq!(mode(&model.join("weights")), mode(&folder.path().join("usual/file")));
    set_mode(&model, 0o700);
    set_mode(&model.join("weights"), 0o640);
    let link = folder.path().join("link");
    symlink("m", &link).unwrap();
    // A slash at the end must not turn the link into a folder.
    replace_directory(&folder.path().join("link/"), write_model("new")).unwrap();
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("m"));
    assert_eq!(read(&model.join("weights")), "new");
    assert_eq!((mode(&model), mode(&model.join("weights"))), (0o700, 0o640));
    // A link to what is not there yet.
    symlink("later", folder.path().join("early")).unwrap();
    replace_directory(&folder.path().join("early"), write_model("new")).unwrap();
    assert!(fs::symlink_metadata(folder.path().join("later")).unwrap().is_dir());
}

/// What a process leaves that is killed: a folder aside, as far as it had come.
fn dead_folder(folder: &Path, parts: &[(&str, &'static str)]) -> PathBuf {
    let dead = folder.join(format!("{}dead", aside::PREFIX));
    fs::create_dir(&dead).unwrap();
    fs::write(dead.join("lock"), "").unwrap();
    for (part, weights) in parts {
        fs::create_dir_all(dead.join(part)).unwrap();
        write_model(weights)(&dead.join(part)).unwrap();
    }
    dead
}

#[test]
fn what_the_dead_left_is_removed_or_put_in_place() {
    // Killed while writing, and just before the exchange.
    for part in ["writing", "new/m"] {
        let (folder, model) = with_model();
        dead_folder(folder.path(), &[(part, "dead")]);
        restore(&model);
        assert_eq!((read(&model.join("weights")), names(folder.path())), ("old".into(), vec!["m".into()]));
    }
    // At the very first and the very last moment.
    let (folder, model) = with_model();
    dead_folder(folder.path(), &[]);
    fs::create_dir(folder.path().join(format!("{}empty", aside::PREFIX))).unwrap();
    restore(&model);
    assert_eq!(names(folder.path()), ["m"]);
    // Just after it: what was not ours is still aside.
    let (folder, model) = with_model();
    let dead = dead_folder(folder.path(), &[("new/m", "older")]);
    fs::create_dir(dead.join("new/m/src")).unwrap();
    fs::write(dead.join("new/m/src/thesis.tex"), "my life's work").unwrap();
    // A save of another model does it too.
    replace_directory(&folder.path().join("other"), write_model("other")).unwrap();
    assert_eq!(read(&model.join("src/thesis.tex")), "my life's work");
    assert_eq!(read(&model.join("weights")), "old");
    assert_eq!(names(folder.path()), ["m", "other"]);
}

#[test]
fn a_kill_between_two_renames_leaves_a_way_back() {
    let both = [("new/m", "new"), ("old/m", "old")];
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("m");
    let dead = dead_folder(folder.path(), &both);
    fs::write(dead.join("old/m/README"), "mine").unwrap();
    // Others leave it alone: whoever removed the model meant it.
    replace_directory(&folder.path().join("other"), write_model("other")).unwrap();
    assert!(!model.exists() && dead.exists());
    restore(&model);
    assert_eq!((read(&model.join("weights")), read(&model.join("README"))), ("new".into(), "mine".into()));
    assert_eq!(names(folder.path()), ["m", "other"]);

    fs::remove_dir_all(&model).unwrap();
    let dead = dead_folder(folder.path(), &both);
    fs::write(dead.join("old/m/README"), "mine").unwrap();
    replace_directory(&model, write_model("newer")).unwrap();
    assert_eq!((read(&model.join("weights")), read(&model.join("README"))), ("newer".into(), "mine".into()));
    assert_eq!(names(folder.path()), ["m", "other"]);
}

#[test]
fn two_renames_do_what_one_exchange_does() {
    let (folder, model) = with_model();
    let dead = dead_folder(folder.path(), &[("new/m", "new")]);
    fs::write(model.join("README"), "mine").unwrap();
    aside::exchange_in_two_steps(&dead.join("new/m"), &model, &dead).unwrap();
    assert_eq!(
        (read(&model.join("weights")), read(&dead.join("old/m/weights"))),
        ("new".into(), "old".into())
    );
    restore(&model);
    assert_eq!((read(&model.join("weights")), read(&model.join("README"))), ("new".into(), "mine".into()));
    // A second step that fails takes back the first.
    let dead = dead_folder(folder.path(), &[]);
    assert!(aside::exchange_in_two_steps(&dead.join("new/m"), &model, &dead).is_err());
    assert_eq!(read(&model.join("weights")), "new");
}

#[test]
fn folders_of_the_living_are_left_alone() {
    let (folder, model) = with_model();
    let destination = Destination::of(&model).unwrap();
    let living = Aside::new(destination).unwrap();
    write_model("living")(&living.writing()).unwrap();
    replace_directory(&model, write_model("new")).unwrap();
    assert_eq!(names(folder.path()).len(), 2);
    living.put_in_place(true).unwrap();
    assert_eq!((read(&model.join("weights")), names(folder.path())), ("living".into(), vec!["m".into()]));
    // One that nobody can prove to be dead.
    let foreign = folder.path().join(".lookalike-unfinished-foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("file"), "").unwrap();
    restore(&model);
    assert_eq!(names(folder.path()).len(), 2);
}

#[test]
fn a_model_that_can_not_be_put_in_place_is_kept() {
    let (folder, model) = with_model();
    let destination = Destination::of(&model).unwrap();
    let aside = Aside::new(destination).unwrap();
    write_model("new")(&aside.writing()).unwrap();
    // Someone puts a model there in the meantime.
    let error = aside.put_in_place(false).unwrap_err();
    let kept = folder.path().join("m.new");
    assert!(error.to_string().contains(&kept.display().to_string()), "{error}");
    assert_eq!((read(&kept.join("weights")), read(&model.join("weights"))), ("new".into(), "old".into()));
    assert_eq!(names(folder.path()), ["m", "m.new"]);
}

#[test]
fn names_that_lead_out_of_the_directory_are_not_ours() {
    for name in ["../secret", "/etc/passwd", "a/b", "..", ".", ""] {
        assert!(escapes(name), "{name:?}");
    }
    assert!(!escapes("model.safetensors"));
}
