//! The program as a user runs it: what it prints where, its exit codes, and what
//! it leaves on disk.

mod answers;
mod bad_input;
mod bombs;
mod crash;
mod damage;
mod demo;
mod files;
mod first_hour;
mod full_disk;
mod further;
mod interruption;
mod names;
mod outputs;
mod packing;
mod search;
mod serve;
mod settings;
mod support;
mod training;
