//! From errors to exit codes.

use std::io;

use lookalike::artifact::ModelError;
use lookalike::data::DataError;
use lookalike::hashing::HashError;
use lookalike::metrics::MetricsError;
use lookalike::text::TextError;
use lookalike::train::{ConfigError, TrainError};

use crate::output::inform;
use crate::ranks;

/// The user ended the run.
pub(crate) const INTERRUPTED: u8 = 130;
/// A mistake in the program.
#[cfg(feature = "mpi")]
pub(crate) const PANICKED: u8 = 101;
pub(crate) const FAILED: u8 = 1;
const BAD_INPUT: u8 = 2;

/// Bad usage that only a command can notice.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A usage error with a message.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// Prints an error and chooses the exit code.
pub(crate) fn report(error: &anyhow::Error) -> u8 {
    if is_broken_pipe(error) {
        // `lookalike … | head` has seen enough: no error.
        return 0;
    }
    let ranks = ranks::all();
    match ranks.size() {
        1 => inform!("lookalike: {}", whole_message(error)),
        _ => inform!("lookalike (rank {}): {}", ranks.rank(), whole_message(error)),
    }
    if is_bad_input(error) { BAD_INPUT } else { FAILED }
}

/// An error and its causes, each once: some tell their cause themselves.
fn whole_message(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |message, cause| match message.as_str() {
        "" => cause,
        message if message.contains(&cause) => message.into(),
        message => format!("{message}: {cause}"),
    })
}

fn is_bad_input(error: &anyhow::Error) -> bool {
    let of_input = error.chain().any(|cause| {
        cause.is::<Usage>()
            || cause.is::<DataError>()
            || cause.is::<TextError>()
            || cause.is::<ModelError>()
            || cause.is::<ConfigError>()
            || cause.is::<HashError>()
            || cause.is::<MetricsError>()
            || matches!(
                cause.downcast_ref::<TrainError>(),
                Some(
                    TrainError::Config(_)
                        | TrainError::OtherData { .. }
                        | TrainError::NotSharded(_)
                        | TrainError::Disagreement(_)
                )
            )
    });
    of_input && !error.chain().any(is_failure_of_the_system)
}

/// What the operating system refuses (a full disk, a missing permission) is
/// nobody's bad input; a name that leads to no file is.
fn is_failure_of_the_system(cause: &(dyn std::error::Error + 'static)) -> bool {
    use io::ErrorKind::{InvalidFilename, IsADirectory, NotADirectory, NotFound};
    let reason = match cause.downcast_ref::<DataError>() {
        // Not the source of the error: the message has it already.
        Some(DataError::Unreadable { reason, .. } | DataError::Unwritable { reason, .. }) => Some(reason),
        _ => cause.downcast_ref::<io::Error>(),
    };
    let of_input = [InvalidFilename, IsADirectory, NotADirectory, NotFound];
    reason.is_some_and(|reason| reason.raw_os_error().is_some() && !of_input.contains(&reason.kind()))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_told_once() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let error = ModelError::Io { path: "m".into(), source: full() };
        let error = anyhow::Error::from(error).context("cannot save");
        assert_eq!(whole_message(&error), format!("cannot save: m: {}", full()));
        let error = anyhow::Error::from(full()).context("cannot save");
        assert_eq!(whole_message(&error), format!("cannot save: {}", full()));
    }
}
