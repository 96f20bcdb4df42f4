//! Tables, charts and one self-contained HTML page.
#![forbid(unsafe_code)]
