//! Which classes look alike? Hash families and the tables of class vectors.
//!
//! A family gives every vector one bucket code a table, such that similar
//! vectors meet in the same bucket more often (paper, section 1.2). The tables
//! hold, for each bucket, the classes whose vectors fall into it.
//!
//! | act | cost, for N classes, K functions × L tables |
//! |---|---|
//! | hash a query | O(K·L) |
//! | look up a bucket | O(1) |
//! | look up a query in all tables ([`HashTables::look_up`]) | O(1) a class in its buckets |
//! | rebuild everything (algorithm 2) | O(N·K·L) to hash, O(N·L) to sort |
//! | re-hash C changed classes (algorithm 5) | O(C·K·L) to hash, O(N·L) to sort |
//!
//! Architecture invariant: nothing here knows about examples, labels or
//! losses; a table is immutable while it is queried.

mod block;
pub mod choose;
pub mod dwta;
pub mod family;
mod lookup;
mod occupancy;
pub mod schedule;
pub mod simhash;
pub mod tables;

pub use block::Block;
pub use choose::{Choice, Wanted};
pub use dwta::Dwta;
pub use family::{Codes, Family, FamilyShape, HashError, HashFamily, HashScratch};
pub use lookup::{Lookup, LookupOptions};
pub use occupancy::Occupancy;
pub use schedule::RefreshSchedule;
pub use simhash::SimHash;
pub use tables::{HashTables, Incremental, TableCodes};
