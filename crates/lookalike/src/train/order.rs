//! The order in which an epoch reads its examples: a function of seed and epoch alone, so
//! that it is the same after resuming.

use rand::Rng as _;

use crate::random::{Rng, Stream, below, rng};

/// Blocks of neighbours that are shuffled together.
const BLOCKS_A_WINDOW: usize = 64;

/// Puts an epoch's examples into its order. With a `window`, blocks of neighbours are
/// shuffled first and then the examples of so many blocks as make a window, so that of a
/// large file only so many are needed at a time.
pub(super) fn shuffle_epoch(order: &mut Vec<u32>, window: Option<usize>, seed: u64, epoch: usize) {
    order.sort_unstable();
    let mut random = rng(seed, Stream::Shuffle, epoch as u64, 0);
    let window = window.unwrap_or(usize::MAX).min(order.len());
    if window < order.len() {
        let blocks: Vec<&[u32]> = order.chunks(window.div_ceil(BLOCKS_A_WINDOW)).collect();
        let mut places: Vec<u32> = (0..blocks.len() as u32).collect();
        shuffle(&mut places, &mut random);
        *order = places.iter().flat_map(|&block| blocks[block as usize]).copied().collect();
    }
    order.chunks_mut(window.max(1)).for_each(|window| shuffle(window, &mut random));
}

/// Fisher–Yates.
fn shuffle(list: &mut [u32], random: &mut Rng) {
    for i in (1..list.len()).rev() {
        let j = below(random.next_u64(), i as u32 + 1) as usize;
        list.swap(i, j);
    }
}
