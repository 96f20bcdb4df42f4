//! A training step allocates nothing in the steady state.
//!
//! Every allocation of the process goes through a counter. Batches differ in
//! size and threads in the work they get, so buffers may still grow for a while;
//! what is asked for is a long run of steps, refreshes of the hash tables
//! included, without a single allocation. A step that allocates each time, or
//! every few steps, never has one.
//!
//! With a sparse part, steps that refresh its index or end an epoch (and choose
//! the blend) may allocate and are passed over.
//!
//! There is one test here and no other, so that nobody else allocates meanwhile.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use lookalike::data::Dataset;
use lookalike::data::synth::{SynthOptions, synth};
use lookalike::sampling::{LshConfig, SamplerKind};
use lookalike::train::{SparseConfig, TrainConfig, Trainer};
use lookalike_kernels::Cpu;

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator, whose
// contract is the same; counting touches no memory that is handed out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(memory, layout, new_size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Steps without an allocation that count as the steady state: more than two
/// epochs, so every batch and several refreshes are among them.
const STEADY_STEPS: usize = 40;
/// The steady state must be reached within so many steps.
const STEPS_MAX: usize = 1_000;

#[test]
fn a_step_allocates_nothing_in_the_steady_state() {
    let data = examples();
    let usual = TrainConfig { hidden: vec![32], ..TrainConfig::default() };
    for sampler in SamplerKind::ALL {
        check(&data, TrainConfig { sampler, ..usual.clone() });
    }
    let deep = TrainConfig { hidden: vec![32, 16], ..usual.clone() };
    check(&data, deep);
    let half = TrainConfig { storage: lookalike::model::Storage::Bf16, ..usual.clone() };
    check(&data, half);
    let nce = TrainConfig {
        loss: Some(lookalike::loss::Loss::Nce),
        sampler: SamplerKind::LogUniform,
        ..usual.clone()
    };
    check(&data, nce);
    // Nobody is held out: folds are trainers with steps of their own.
    let sparse = SparseConfig { epochs: Some(STEPS_MAX), held_out: 0, ..SparseConfig::default() };
    check(&data, TrainConfig { sparse: Some(sparse), ..usual.clone() });
    check(&data, TrainConfig { sparse: Some(sparse), sampler: SamplerKind::Full, ..usual });
}

fn examples() -> Dataset {
    let shape =
        SynthOptions { classes: 2_000, features: 3_000, train: 1_000, test: 0, ..SynthOptions::default() };
    synth(&shape).expect("the shape is valid").0
}

fn check(data: &Dataset, config: TrainConfig) {
    let name = format!(
        "{}, {:?}, {:?}, {:?}, {:?}",
        config.sampler, config.loss, config.hidden, config.storage, config.sparse
    );
    let config = TrainConfig {
        budget: Some(100),
        batch: 64,
        lsh: LshConfig { refresh_first: 3, refresh_growth: 1.0, ..LshConfig::default() },
        ..config
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("threads start");
    pool.install(|| {
        let mut trainer = Trainer::new(config, data.view(), Cpu::detect()).expect("the settings are valid");
        let has_sparse_part = trainer.model.sparse.is_some();
        let (mut steady, mut last_seen) = (0, 0);
        for _ in 0..STEPS_MAX {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            let report = trainer.step().expect("training does not diverge");
            let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
            if has_sparse_part && (report.refreshed || report.progress.position == 0) {
                continue;
            }
            if allocations == 0 {
                steady += 1;
            } else {
                (steady, last_seen) = (0, allocations);
            }
            if steady == STEADY_STEPS {
                return;
            }
        }
        panic!(
            "{name}: no {STEADY_STEPS} steps without an allocation; the last step with any made {last_seen}"
        );
    });
}
