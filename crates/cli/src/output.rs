//! Words for people. They are beside the point: a closed or full standard error
//! never ends the work that they tell of. (Results go to standard output, and a
//! failure to write them is an error like any other; see `exit.rs`.)

/// A line on standard error, as `eprintln!` writes it, which panics where nobody
/// reads any more.
macro_rules! inform {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr().lock(), $($words)*);
    }};
}
pub(crate) use inform;

/// The same of what all ranks would say alike: the first one does.
macro_rules! inform_once {
    ($($words:tt)*) => {
        if $crate::ranks::is_first() {
            $crate::output::inform!($($words)*);
        }
    };
}
pub(crate) use inform_once;
