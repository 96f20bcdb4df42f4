//! Running the program in a folder of its own.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// A folder with files, in which the program runs.
pub(crate) struct Folder {
    folder: TempDir,
}

/// What a finished program left behind.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) errors: String,
}

impl Done {
    pub(crate) fn new(output: Output) -> Self {
        let done = Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("output is UTF-8"),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        assert!(!done.errors.contains("panicked"), "{}", done.errors);
        done
    }

    /// The only line of the output as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.out.lines().count(), 1, "{}", self.out);
        serde_json::from_str(&self.out).unwrap()
    }
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        std::fs::write(self.path(name), content).unwrap();
        self
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// Names of all files and folders.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lookalike"));
        command.args(words(line)).args(meant(line)).current_dir(self.folder.path());
        command
    }

    /// Runs exactly this, which must be refused; gives what was said.
    #[track_caller]
    pub(crate) fn refuse_to_replace(&self, line: &str) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lookalike"));
        command.args(words(line)).current_dir(self.folder.path()).stdin(Stdio::null());
        let done = Done::new(command.output().expect("the program runs"));
        assert_eq!(done.code, Some(2), "{line}: {}", done.errors);
        done.errors
    }

    pub(crate) fn run(&self, line: &str) -> Done {
        Done::new(self.command(line).stdin(Stdio::null()).output().expect("the program runs"))
    }

    pub(crate) fn run_with_input(&self, line: &str, input: &[u8]) -> Done {
        let mut child = self.spawn(line);
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let done = Done::new(child.wait_with_output().unwrap());
        // A program that refuses its input does not read all of it.
        let _ = writer.join().unwrap();
        done
    }

    pub(crate) fn spawn(&self, line: &str) -> Child {
        let mut command = self.command(line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the program runs")
    }

    /// Runs where no file can grow beyond so many blocks: a full disk that needs
    /// no disk.
    #[cfg(unix)]
    pub(crate) fn run_with_little_space(&self, line: &str, blocks: usize) -> Done {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"")])
            .arg(env!("CARGO_BIN_EXE_lookalike"))
            .args(words(line))
            .args(meant(line))
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        Done::new(command.output().expect("sh runs"))
    }

    /// Runs where no more than so many kilobytes of memory can be had.
    #[cfg(unix)]
    pub(crate) fn run_with_little_memory(&self, line: &str, kilobytes: usize) -> Done {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -v {kilobytes}; exec \"$0\" \"$@\"")])
            .arg(env!("CARGO_BIN_EXE_lookalike"))
            .args(words(line))
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        Done::new(command.output().expect("sh runs"))
    }

    /// Runs where heap and stacks may take no more than so many kilobytes; mapped files and
    /// the code do not count.
    #[cfg(target_os = "linux")]
    pub(crate) fn run_with_little_data(&self, line: &str, kilobytes: usize) -> Done {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -d {kilobytes}; exec \"$0\" \"$@\"")])
            .arg(env!("CARGO_BIN_EXE_lookalike"))
            .args(words(line))
            // Stacks count, and are as many as threads.
            .env("RAYON_NUM_THREADS", "2")
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        Done::new(command.output().expect("sh runs"))
    }

    /// Runs what must succeed.
    #[track_caller]
    pub(crate) fn succeed(&self, line: &str) -> Done {
        let done = self.run(line);
        assert_eq!(done.code, Some(0), "{line}: {}", done.errors);
        done
    }

    /// Runs what must be refused: exit code 2, one message, nothing written.
    #[track_caller]
    pub(crate) fn refuse(&self, line: &str) -> String {
        let before = self.names();
        let done = self.run(line);
        assert_eq!(done.code, Some(2), "{line}: {}", done.errors);
        assert_eq!(done.out, "", "{line}");
        assert_eq!(self.names(), before, "{line}");
        let messages: Vec<&str> = done.errors.lines().filter(|l| l.starts_with("lookalike: ")).collect();
        assert_eq!(messages.len(), 1, "{line}: {}", done.errors);
        messages[0].to_owned()
    }

    /// Small learnable numbers: `made/train.txt` and `made/test.txt`.
    pub(crate) fn with_numbers() -> Self {
        let folder = Self::new();
        folder.succeed("data synth --classes 80 --features 300 --train 600 --test 100 --out made");
        folder
    }

    /// A model of them in `model`.
    pub(crate) fn with_number_model() -> Self {
        let folder = Self::with_numbers();
        folder.succeed("train made/train.txt --model model --epochs 2 --hidden 16 --budget 20 -q");
        folder
    }

    /// A model in `model` of the names in `names.tsv`.
    pub(crate) fn with_name_model() -> Self {
        let folder = Self::new();
        folder.write("names.tsv", NAMES);
        folder.succeed(
            "train names.tsv --model model --epochs 60 --hidden 16 --lr 0.02 --sampler mixed --budget 3 \
             --min-documents 1 -q",
        );
        folder
    }
}

/// Names of a few cities, a few each, one with two labels.
pub(crate) const NAMES: &str = "\
München\tMunich
Muenchen\tMunich
Monaco di Baviera\tMunich
Мюнхен\tMunich
Wien\tVienna
Vienne\tVienna
Вена\tVienna
Praha\tPrague
Prag\tPrague
Прага\tPrague
Köln\tCologne
Colonia\tCologne|Colonia del Sacramento
Кёльн\tCologne
東京\tTokyo
Tōkyō\tTokyo
Токио\tTokyo
";

/// A test that trains into the place of another model means it.
fn meant(line: &str) -> Option<&'static str> {
    let trains_anew = line.starts_with("train ") && line.contains("--model ") && !line.contains("--resume");
    (trains_anew && !line.contains("--overwrite")).then_some("--overwrite")
}

/// Splits at spaces; `'` keeps words together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in line.split('\'').enumerate() {
        if i % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(String::from));
        }
    }
    words
}
