//! The service as clients meet it, over real connections.

mod answers;
mod bad_input;
mod life;
mod limits;
mod support;
