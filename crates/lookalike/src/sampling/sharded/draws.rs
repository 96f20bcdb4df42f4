//! Uniform draws over several ranks, without repetition, from the classes that are not
//! in a set of which each rank knows its own part.
//!
//! All ranks draw the same numbers. Whether a drawn class is new only the rank that has
//! it can tell; one bit a draw tells the others, and the first so many new ones are
//! taken. Where nearly all classes are wanted, one process goes through all classes
//! instead; then a bit a class says which are in the set, which is no more than a bit
//! or two a draw.

use rand_xoshiro::rand_core::Rng as _;

use super::super::lsh::Plan;
use super::lsh::{ExampleWalk, SetRoom};
use crate::collective::Shard;
use crate::random::below;

const WORD: usize = u32::BITS as usize;

/// Draws until each set has as many negatives as `plan` says, as
/// [`Gather::draw_uniform`](super::super::gather::Gather::draw_uniform) does.
pub(super) fn draw(shard: &Shard, plan: &Plan, walks: &mut [ExampleWalk], set: &mut SetRoom) {
    let classes = shard.num_classes();
    let (mut by_trial, mut one_by_one) = (Vec::new(), Vec::new());
    for walk in walks {
        let len = walk.truths_of_all + walk.found_by_all;
        let negatives = plan.rest.drawn_up_to(walk.found_by_all, plan.budget);
        let (others, limit) = (classes - len, (walk.truths_of_all + negatives).min(classes));
        let wanted = limit.saturating_sub(len);
        match wanted {
            0 => {}
            _ if wanted <= others / 2 && others >= classes / 4 => by_trial.push((walk, wanted)),
            _ => one_by_one.push((walk, wanted, others)),
        }
    }
    draw_by_trial(shard, by_trial, set);
    draw_one_by_one(shard, one_by_one);
}

/// Draws from all classes, and passes over those that are in the set.
fn draw_by_trial(shard: &Shard, mut walks: Vec<(&mut ExampleWalk, usize)>, set: &mut SetRoom) {
    let (own, classes) = (shard.classes(), shard.num_classes() as u32);
    while let Some(most) = walks.iter().map(|walk| walk.1).max() {
        let words = (most + most / 4).div_ceil(WORD) + 1;
        let mut bits = vec![0u32; walks.len() * words];
        for ((walk, _), bits) in walks.iter_mut().zip(bits.chunks_exact_mut(words)) {
            let members = [&walk.truths[..], &walk.own[..]];
            let (mut set, room) = set.start(own.len(), members, words * WORD);
            for draw in 0..words * WORD {
                let class = below(walk.rng.next_u64(), classes) as usize;
                if own.contains(&class) {
                    let len = set.len();
                    set.take(&[(class - own.start) as u32], room);
                    bits[draw / WORD] |= ((set.len() > len) as u32) << (draw % WORD);
                }
            }
            let truths = walk.truths.len();
            walk.own.clear();
            walk.own.extend_from_slice(&set.classes()[truths..]);
            set.finish();
        }
        // Nobody else has set the same bit.
        let mine = bits.clone();
        shard.collective().sum_u32(&mut bits);
        let all = mine.chunks_exact(words).zip(bits.chunks_exact(words));
        for ((walk, wanted), (mine, all)) in walks.iter_mut().zip(all) {
            let is_set = |bits: &[u32], draw: usize| bits[draw / WORD] >> (draw % WORD) & 1 == 1;
            let news: Vec<usize> = (0..words * WORD).filter(|&draw| is_set(all, draw)).collect();
            let taken = news.len().min(*wanted);
            // Own ones stand at the end in the order in which they were drawn.
            let too_many = news[taken..].iter().filter(|&&draw| is_set(mine, draw)).count();
            walk.own.truncate(walk.own.len() - too_many);
            walk.drawn_by_all += taken;
            *wanted -= taken;
        }
        walks.retain(|walk| walk.1 > 0);
    }
}

/// Selection sampling (Knuth, volume 2, algorithm S) over all classes.
fn draw_one_by_one(shard: &Shard, mut walks: Vec<(&mut ExampleWalk, usize, usize)>) {
    let (own, classes) = (shard.classes(), shard.num_classes());
    let words = classes.div_ceil(WORD);
    let mut bits = vec![0u32; walks.len() * words];
    for ((walk, ..), bits) in walks.iter().zip(bits.chunks_exact_mut(words)) {
        for &local in walk.truths.iter().chain(&walk.own) {
            let class = own.start + local as usize;
            bits[class / WORD] |= 1 << (class % WORD);
        }
    }
    shard.collective().sum_u32(&mut bits);
    for ((walk, wanted, others), bits) in walks.iter_mut().zip(bits.chunks_exact(words)) {
        for class in 0..classes {
            if *wanted == 0 {
                break;
            }
            if bits[class / WORD] >> (class % WORD) & 1 == 0 {
                if (below(walk.rng.next_u64(), *others as u32) as usize) < *wanted {
                    walk.own.extend(own.contains(&class).then(|| (class - own.start) as u32));
                    walk.drawn_by_all += 1;
                    *wanted -= 1;
                }
                *others -= 1;
            }
        }
    }
}
