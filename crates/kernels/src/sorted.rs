//! Looking ids up in an ascending row of ids: two comparisons of 16 each, however long
//! the row is.

use crate::LANES;
use crate::simd::Simd;

/// An ascending row of ids, made ready to look others up in it: O(row / 16).
#[derive(Clone, Copy, Debug)]
pub struct SortedIds<'a> {
    ids: &'a [u32],
    /// Every 16th of them from the first on, filled up to whole vectors with what no id is.
    firsts: &'a [u32],
}

/// An id that two ascending lists have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Common {
    /// Its place in the row that was made ready.
    pub in_row: u32,
    /// Its place in the list that was looked up.
    pub in_list: u32,
}

/// No id is this large.
const NO_ID: u32 = u32::MAX;

impl<'a> SortedIds<'a> {
    /// `ids` ascend and are below `u32::MAX`. `room` is working memory.
    pub fn new(ids: &'a [u32], room: &'a mut Vec<u32>) -> Self {
        room.clear();
        room.extend(ids.iter().step_by(LANES));
        room.resize(room.len().next_multiple_of(LANES), NO_ID);
        Self { ids, firsts: room }
    }
}

#[inline(always)]
pub(crate) fn common_ids<S: Simd>(simd: S, row: SortedIds<'_>, list: &[u32], out: &mut [Common]) -> usize {
    let SortedIds { ids, firsts } = row;
    if ids.len() < LANES {
        let mut full = [NO_ID; LANES];
        full[..ids.len()].copy_from_slice(ids);
        return common_of_blocks(simd, &full, firsts, list, out);
    }
    common_of_blocks(simd, ids, firsts, list, out)
}

#[inline(always)]
fn common_of_blocks<S: Simd>(
    simd: S,
    ids: &[u32],
    firsts: &[u32],
    list: &[u32],
    out: &mut [Common],
) -> usize {
    let out = &mut out[..list.len()];
    let (firsts, last_block) = (firsts.as_chunks::<LANES>().0, ids.len() - LANES);
    let (mut vector, mut count) = (0, 0);
    for (in_list, &id) in (0..).zip(list) {
        let wanted = simd.splat_ints(id);
        // Lists ascend too, so nothing before this is asked for again.
        while firsts.get(vector + 1).is_some_and(|next| next[0] <= id) {
            vector += 1;
        }
        let Some(firsts) = firsts.get(vector) else { break };
        let above = simd.mask_bits(simd.greater_ints(simd.load_ints(firsts), wanted));
        let block = (vector * LANES + above.count_zeros() as usize).saturating_sub(1);
        // The last block is moved back to where it is whole.
        let start = (block * LANES).min(last_block);
        let Some((candidates, _)) = ids[start..].split_first_chunk::<LANES>() else { break };
        let found = simd.mask_bits(simd.equal_ints(simd.load_ints(candidates), wanted));
        // Always written, counted only where it was found: no branch to miss.
        out[count] = Common { in_row: start as u32 + found.trailing_zeros(), in_list };
        count += usize::from(found != 0);
    }
    count
}
