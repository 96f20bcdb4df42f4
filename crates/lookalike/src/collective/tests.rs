use std::sync::Arc;

use super::*;

/// A number that sums in another order would round differently.
fn number(rank: usize, i: usize) -> f32 {
    1.0 + (rank * 37 + i * 11) as f32 * 1e-4 + if rank == 1 { 1e5 } else { 0.0 }
}

fn numbers(rank: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| number(rank, i)).collect()
}

/// Of one to four numbers.
fn tree<T: Copy + std::ops::Add<Output = T>>(numbers: &[T]) -> T {
    match *numbers {
        [a] => a,
        [a, b] => a + b,
        [a, b, c] => (a + b) + c,
        [a, b, c, d] => (a + b) + (c + d),
        _ => panic!("more than four"),
    }
}

/// Small and large messages, of lengths that ranks do and do not divide.
const LENGTHS: [usize; 5] = [0, 1, 7, 1201, 5003];

#[test]
fn sums_and_maxima_are_taken_as_a_tree_of_ranks_everywhere() {
    for size in [1, 2, 3, 4] {
        for len in LENGTHS {
            let outcomes = Threads::run(size, |collective| {
                let (mut sums, mut maxima) =
                    (numbers(collective.rank(), len), numbers(collective.rank(), len));
                let mut wide: Vec<f64> = sums.iter().map(|&x| f64::from(x)).collect();
                let mut counts: Vec<u32> = (0..len as u32).map(|i| i + collective.rank() as u32).collect();
                collective.sum_f32(&mut sums);
                collective.max_f32(&mut maxima);
                collective.sum_f64(&mut wide);
                collective.sum_u32(&mut counts);
                (sums, maxima, wide, counts)
            });
            for (sums, maxima, wide, counts) in outcomes {
                for i in 0..len {
                    let all: Vec<f32> = (0..size).map(|rank| number(rank, i)).collect();
                    let wider: Vec<f64> = all.iter().map(|&x| f64::from(x)).collect();
                    assert_eq!(sums[i], tree(&all));
                    assert_eq!(maxima[i], all.iter().copied().fold(0.0, f32::max));
                    assert_eq!(wide[i], tree(&wider));
                    assert_eq!(counts[i] as usize, size * i + (0..size).sum::<usize>());
                }
            }
        }
    }
}

#[test]
fn gathered_values_stand_in_the_order_of_ranks() {
    let outcomes = Threads::run(3, |collective| {
        let rank = collective.rank();
        let texts = collective.gather_texts(&b"abc"[..rank]);
        let mut word = [rank as u8; 5];
        collective.broadcast_bytes(2, &mut word);
        collective.barrier();
        (texts, word, collective.any(rank == 1), collective.any(false))
    });
    for (texts, word, some, none) in outcomes {
        assert_eq!(texts, [b"".to_vec(), b"a".to_vec(), b"ab".to_vec()]);
        assert_eq!(word, [2; 5]);
        assert!(some && !none);
    }
}

/// Twice the numbers, whatever the number of ranks.
#[test]
fn a_large_sum_sends_less_than_twice_its_bytes() {
    for size in [2, 4] {
        let sent = Threads::run(size, |collective| {
            collective.sum_f32(&mut vec![1.0; 4000]);
            collective.bytes_sent()
        });
        assert_eq!(sent, vec![(2 * 16_000 * (size - 1) / size) as u64; size]);
    }
}

#[test]
fn shards_cover_all_classes_once() {
    for (size, num_classes) in [(1, 10), (3, 10), (4, 4), (5, 5), (7, 1_000_003), (600, 5_000)] {
        let shards = Threads::new(size);
        let shards = shards.into_iter().map(|rank| Shard::new(Arc::new(rank), num_classes).classes());
        let shards: Vec<_> = shards.collect();
        assert_eq!((shards[0].start, shards[size - 1].end), (0, num_classes));
        assert!(shards.windows(2).all(|pair| pair[0].end == pair[1].start));
        let is_fair = |len: usize| len > 0 && len.abs_diff(num_classes / size) <= num_classes / 1000 + 1;
        assert!(shards.iter().all(|classes| is_fair(classes.len())));
    }
}

/// What a rank has is a branch of the tree of one process: the same ranges, next to each
/// other, joined by themselves.
#[test]
fn ranks_have_the_ranges_of_one_process_and_their_sums() {
    for count in [0, 3, 8, 1_203, 70_001] {
        let whole: Vec<_> = Ranges::whole(count).iter().collect();
        assert_eq!((whole.len(), whole[0].start, whole[RANGES - 1].end), (RANGES, 0, count));
        for size in [1, 2, 4, 8] {
            let of_rank = |rank| {
                let ranges = Ranges::of_rank(count, rank, size);
                let first = ranges.keys().start;
                assert_eq!(first % (1 << ranges.block_bits()), 0);
                ranges.iter().map(move |range| first + range.start..first + range.end)
            };
            assert!((0..size).flat_map(of_rank).eq(whole.iter().cloned()), "{count} keys, {size} ranks");
        }
    }
    let sum_on = |size: usize| {
        let sums = Threads::run(size, |collective| {
            let ranges = RANGES / size;
            let mut sums = RangeSums::default();
            sums.start(ranges, 3);
            for range in 0..ranges {
                sums.add(range, &numbers(collective.rank() * ranges + range, 3));
            }
            let sums = sums.join();
            collective.sum_f32(sums);
            sums.to_vec()
        });
        sums[0].clone()
    };
    let whole = sum_on(1);
    assert!([2, 4, 8].iter().all(|&size| sum_on(size) == whole));
}

#[test]
fn who_differs_is_named_with_what() {
    let outcomes = Threads::run(3, |collective| {
        let seed = if collective.rank() == 2 { 7 } else { 1 };
        let agreement = Agreement::new().on("version", "0.1.0").on("seed", seed);
        (agreement.check(&*collective), Agreement::new().on("version", "0.1.0").check(&*collective))
    });
    for (differs, agrees) in outcomes {
        let message = differs.unwrap_err().to_string();
        assert!(message.starts_with("rank 2 has seed 7, but rank 0 has 1:"), "{message}");
        assert_eq!(agrees, Ok(()));
    }
}
