use proptest::prelude::*;

use super::fill::CHUNK;
use super::*;
use crate::hashing::{Codes, Family, FamilyShape};
use crate::random::{Stream, mix};

const DIM: usize = 20;

fn vectors(classes: usize, seed: u64) -> Vec<f32> {
    let stride = lookalike_kernels::padded(DIM);
    let mut data = vec![0.0; classes * stride];
    for (class, row) in data.chunks_mut(stride).enumerate() {
        fill_row(&mut row[..DIM], seed, class as u64);
    }
    data
}

fn fill_row(row: &mut [f32], seed: u64, class: u64) {
    for (j, x) in row.iter_mut().enumerate() {
        *x = (mix(seed, Stream::Data, class, j as u64) >> 40) as f32 - 8e6;
    }
}

fn family(k: usize, family: Family) -> Box<dyn HashFamily> {
    FamilyShape { family, dim: DIM, k, l: 5, bin: 8, codes: Codes::Clean }.draw(7).unwrap()
}

fn in_pool<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

fn assert_equal(a: &HashTables, b: &HashTables) {
    assert!(a.offsets == b.offsets && a.ids == b.ids);
}

/// A wide span has the classes whose codes agree in all functions but the first few.
#[test]
fn wide_spans_are_buckets_of_fewer_functions() {
    for (k, kind) in [(3, Family::Dwta), (5, Family::Simhash)] {
        let data = vectors(700, 1);
        let rows = RowsView::f32(&data, DIM);
        let mut tables = HashTables::new(family(k, kind), 700, Incremental::Never);
        tables.rebuild(Cpu::detect(), rows);
        assert_eq!(tables.functions_to_spare(), k as u32 - 1);
        let mut codes = vec![0; 700 * 5];
        let ids: Vec<u32> = (0..700).collect();
        tables.family().hash_rows(Cpu::detect(), rows, &ids, 0..5, &mut codes);
        let bits = tables.family().shape().shift();
        for (table, query) in [(0, 3), (4, 699)] {
            let code = codes[query * 5 + table];
            assert_eq!(tables.wide_span(table, code, 0), tables.span(table, code));
            for spared in 1..k as u32 {
                let mut found = tables.ids()[tables.wide_span(table, code, spared)].to_vec();
                found.sort_unstable();
                let agrees =
                    |id: &u32| codes[*id as usize * 5 + table] >> (bits * spared) == code >> (bits * spared);
                assert_eq!(found, ids.iter().copied().filter(agrees).collect::<Vec<u32>>());
            }
        }
    }
    let overlapped =
        FamilyShape { family: Family::Dwta, dim: DIM, k: 3, l: 5, bin: 8, codes: Codes::Overlapped };
    let tables = HashTables::new(overlapped.draw(7).unwrap(), 9, Incremental::Never);
    assert_eq!(tables.functions_to_spare(), 0, "their codes do not tell functions apart");
}

/// Centred tables are tables of centred vectors, after a rebuild and after an update.
#[test]
fn centred_tables_forget_what_all_classes_have_in_common() {
    let (mut data, classes) = (vectors(CHUNK + 300, 1), CHUNK + 300);
    let stride = lookalike_kernels::padded(DIM);
    let mut tables = HashTables::new(family(2, Family::Dwta), classes, Incremental::Always).centred();
    tables.rebuild(Cpu::detect(), RowsView::f32(&data, DIM));
    for class in [5, CHUNK + 1] {
        fill_row(&mut data[class * stride..][..DIM], 3, class as u64);
    }
    tables.update(Cpu::detect(), RowsView::f32(&data, DIM), &[5, CHUNK as u32 + 1]);
    let mut centred = data.clone();
    for j in 0..DIM {
        let column = || (0..classes).map(|class| class * stride + j);
        let mean = column().map(|at| f64::from(data[at])).sum::<f64>() / classes as f64;
        column().for_each(|at| centred[at] -= mean as f32);
    }
    let ids: Vec<u32> = (0..classes as u32).collect();
    let mut codes = vec![0; classes * 5];
    tables.family().hash_rows(Cpu::detect(), RowsView::f32(&centred, DIM), &ids, 0..5, &mut codes);
    let is_elsewhere = |place: &usize| {
        let (class, table) = ((place / 5) as u32, place % 5);
        tables.bucket(table, codes[*place]).binary_search(&class).is_err()
    };
    // Means are summed in another order: a near tie may fall the other way.
    let elsewhere = (0..codes.len()).filter(is_elsewhere).count();
    assert!(elsewhere < codes.len() / 1000, "{elsewhere} of {}", codes.len());
    let mut block = Block::default();
    tables.load_classes(Cpu::detect(), RowsView::f32(&data, DIM), &[7], &mut block);
    assert!((block.values()[0] - centred[7 * stride]).abs() < 10.0, "of numbers up to 8e6");
}

#[test]
fn every_class_is_in_its_bucket_of_every_table() {
    for (k, kind) in [(2, Family::Dwta), (6, Family::Dwta), (4, Family::Simhash)] {
        let classes = CHUNK * 2 + 5;
        let data = vectors(classes, 1);
        let rows = RowsView::f32(&data, DIM);
        let mut tables = HashTables::new(family(k, kind), classes, Incremental::Auto);
        tables.rebuild(Cpu::detect(), rows);
        let ids: Vec<u32> = (0..classes as u32).collect();
        let mut codes = vec![0; classes * 5];
        tables.family().hash_rows(Cpu::detect(), rows, &ids, 0..5, &mut codes);
        for table in 0..5 {
            let mut buckets = vec![Vec::new(); tables.family().buckets()];
            for &id in &ids {
                buckets[codes[id as usize * 5 + table] as usize].push(id);
            }
            for (code, bucket) in buckets.iter().enumerate() {
                assert_eq!(tables.bucket(table, code as u32), bucket);
            }
        }
        let occupancy = tables.occupancy();
        let mean = classes as f64 / tables.family().buckets() as f64;
        assert!((occupancy.mean - mean).abs() < 1e-9);
    }
}

#[test]
fn codes_make_the_same_tables_again() {
    for (k, kind) in [(2, Family::Dwta), (6, Family::Dwta), (4, Family::Simhash)] {
        let classes = CHUNK + 5;
        let data = vectors(classes, 1);
        let mut tables = HashTables::new(family(k, kind), classes, Incremental::Auto);
        tables.rebuild(Cpu::detect(), RowsView::f32(&data, DIM));
        let codes = tables.codes();
        let mut restored = HashTables::new(family(k, kind), classes, Incremental::Auto);
        assert!(restored.restore(&codes, &[]));
        assert_equal(&tables, &restored);
        // Those of centred vectors know what queries are less by.
        let mut centred = HashTables::new(family(k, kind), classes, Incremental::Auto).centred();
        centred.rebuild(Cpu::detect(), RowsView::f32(&data, DIM));
        let mut restored_centred = HashTables::new(family(k, kind), classes, Incremental::Auto).centred();
        assert!(!restored_centred.restore(&centred.codes(), &[]));
        assert!(restored_centred.restore(&centred.codes(), centred.mean()));
        assert_equal(&centred, &restored_centred);
        assert!(centred.mean().iter().any(|&x| x != 0.0) && restored_centred.mean() == centred.mean());
        // Refreshed, they are no older than others.
        let other = vectors(classes, 2);
        restored.refresh(Cpu::detect(), RowsView::f32(&other, DIM), Some(&[1]));
        tables.rebuild(Cpu::detect(), RowsView::f32(&other, DIM));
        assert_equal(&tables, &restored);
        // Codes of other tables.
        let before = restored.codes();
        for bad in [TableCodes::Narrow(vec![0; 7]), TableCodes::Wide(vec![u32::MAX; classes * 5])] {
            assert!(!restored.restore(&bad, &[]));
            assert!(!restored.restore(&before, &[0.0; DIM]));
        }
        assert_eq!(restored.codes(), before);
    }
}

#[test]
fn groups_do_not_change_the_tables() {
    let data = vectors(3_000, 2);
    let mut at_once = HashTables::new(family(3, Family::Dwta), 3_000, Incremental::Always);
    let mut in_groups = HashTables::new(family(3, Family::Dwta), 3_000, Incremental::Never);
    in_groups.group = 2;
    at_once.rebuild(Cpu::detect(), RowsView::f32(&data, DIM));
    in_groups.rebuild(Cpu::detect(), RowsView::f32(&data, DIM));
    assert_equal(&at_once, &in_groups);
}

#[test]
fn one_thread_and_many_build_the_same() {
    let data = vectors(10_000, 3);
    let build = |threads| {
        in_pool(threads, || {
            let mut tables = HashTables::new(family(3, Family::Dwta), 10_000, Incremental::Auto);
            tables.rebuild(Cpu::detect(), RowsView::f32(&data, DIM));
            tables
        })
    };
    let one = build(1);
    for threads in [2, 3, 7] {
        assert_equal(&one, &build(threads));
    }
}

#[test]
fn no_classes_are_no_trouble() {
    let mut tables = HashTables::new(family(3, Family::Dwta), 0, Incremental::Auto);
    tables.rebuild(Cpu::detect(), RowsView::f32(&[], DIM));
    assert!(tables.bucket(4, 100).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Algorithm 5 against algorithm 2.
    #[test]
    fn updates_equal_a_rebuild(
        k in prop_oneof![Just(3usize), Just(6)], // narrow and wide codes
        keep in prop_oneof![Just(Incremental::Always), Just(Incremental::Never), Just(Incremental::Auto)],
        threads in 1usize..4,
        steps in prop::collection::vec(
            prop::collection::btree_set(0u32..4_500, 0..300), 1..5),
    ) {
        let mut data = vectors(4_500, 5);
        let mut updated = HashTables::new(family(k, Family::Dwta), 4_500, keep);
        let mut rebuilt = HashTables::new(family(k, Family::Dwta), 4_500, Incremental::Never);
        updated.rebuild(Cpu::detect(), RowsView::f32(&data, DIM));
        for (step, changed) in steps.iter().enumerate() {
            let stride = lookalike_kernels::padded(DIM);
            for &id in changed {
                let row = &mut data[id as usize * stride..][..DIM];
                fill_row(row, 6 + step as u64, u64::from(id));
            }
            let rows = RowsView::f32(&data, DIM);
            let changed: Vec<u32> = changed.iter().copied().collect();
            in_pool(threads, || updated.refresh(Cpu::detect(), rows, Some(&changed)));
            rebuilt.rebuild(Cpu::detect(), rows);
            assert_equal(&updated, &rebuilt);
        }
    }
}
