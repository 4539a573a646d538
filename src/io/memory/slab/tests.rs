//! Pieces of slabs come, go and keep their bytes; unused memory is given back.

use super::*;

fn slabs() -> &'static Slabs {
    Box::leak(Box::new(Slabs::new()))
}

/// Checks the counts of the state against its slabs.
fn check(slabs: &Slabs) {
    let state = slabs.lock();
    let count = |of: fn(&Slab) -> Bits| -> usize {
        state.all.values().map(|slab| of(slab).count_ones() as usize).sum()
    };
    assert_eq!(count(|slab| slab.used), state.used);
    assert_eq!(count(|slab| !slab.used & !slab.given), state.idle);
    assert_eq!(count(|slab| slab.used & slab.given), 0);
    let open = state.all.iter().map(|(&address, slab)| (room(slab.used), address));
    assert_eq!(open.collect::<BTreeSet<_>>(), state.open);
    let is_empty = |(address, slab): (&usize, &Slab)| (slab.used == 0).then_some(*address);
    assert!(state.all.iter().filter_map(is_empty).all(|address| state.empty.contains(&address)));
    assert!(state.empty.iter().all(|address| state.all[address].used == 0));
}

#[test]
fn pieces_keep_what_is_written_while_others_come_and_go() {
    let slabs = slabs();
    let mut pieces: Vec<(Piece, u8)> = Vec::new();
    let mut random = 1_u64;
    for step in 0..3000_u32 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let chance = (random >> 33) as usize;
        // More and more pieces, then fewer and fewer.
        if chance % 100 < if step < 1500 { 60 } else { 40 } || pieces.is_empty() {
            let granules = 4 + (chance / 100 % 29) as u32;
            let mut piece = slabs.take(granules).unwrap().unwrap();
            assert_eq!(piece.capacity(), granules as usize * GRANULE_BYTES);
            let (value, length) = (step as u8, piece.capacity());
            piece.as_mut_slice()[0] = value;
            piece.as_mut_slice()[length - 1] = value;
            pieces.push((piece, value));
        } else {
            let (piece, value) = pieces.swap_remove(chance / 100 % pieces.len());
            let ends = [piece.as_slice()[0], piece.as_slice()[piece.capacity() - 1]];
            assert_eq!(ends, [value; 2]);
        }
        check(slabs);
    }
}

#[test]
fn memory_that_is_free_goes_back_to_the_system() {
    let slabs = slabs();
    let mut pieces: Vec<_> = (0..160).map(|_| slabs.take(8).unwrap().unwrap()).collect();
    assert_eq!(slabs.lock().all.len(), 10);
    pieces.iter_mut().for_each(|piece| piece.as_mut_slice().fill(7));
    // One piece stays in each slab.
    let mut number = 0;
    pieces.retain(|_| {
        number += 1;
        number % 16 == 1
    });
    check(slabs);
    let figures = || {
        let state = slabs.lock();
        (state.all.len(), state.idle)
    };
    // All memory that was in use a moment ago stays, and later little, though a piece of each slab is used.
    assert_eq!(figures(), (10, 150 * 8));
    assert!(slabs.give_back_idle(Instant::now()));
    assert_eq!(figures(), (10, 150 * 8));
    assert!(!slabs.give_back_idle(Instant::now() + 3 * HOLD));
    check(slabs);
    assert_eq!((figures().0, figures().1 <= IDLE), (10, true), "{:?}", figures());
    // Memory that is used again after it was given back is zero or unchanged.
    let mut others: Vec<_> = (0..100).map(|_| slabs.take(8).unwrap().unwrap()).collect();
    check(slabs);
    assert!(others.iter().all(|piece| matches!(piece.as_slice()[9], 0 | 7)));
    others.iter_mut().for_each(|piece| piece.as_mut_slice().fill(8));
    assert!(pieces.iter().all(|piece| piece.as_slice().iter().all(|&byte| byte == 7)));
    drop((pieces, others));
    check(slabs);
    slabs.give_back_idle(Instant::now() + 3 * HOLD);
    check(slabs);
    let (left, idle) = figures();
    assert!(left <= 2 && idle <= IDLE, "{left} slabs, {idle} granules");
}

#[test]
fn memory_of_a_wave_is_there_for_the_next_one() {
    let slabs = slabs();
    let wave = || drop((0..160).map(|_| slabs.take(8).unwrap().unwrap()).collect::<Vec<_>>());
    wave();
    let held: Vec<usize> = slabs.lock().all.keys().copied().collect();
    for _ in 0..20 {
        wave();
        slabs.give_back_idle(Instant::now());
        check(slabs);
    }
    let state = slabs.lock();
    assert_eq!(state.all.keys().copied().collect::<Vec<_>>(), held);
    assert!(state.all.values().all(|slab| slab.given == 0));
}

#[test]
fn what_is_freed_long_after_the_last_was_taken_goes_back_at_once() {
    let slabs = slabs();
    let pieces: Vec<_> = (0..160).map(|_| slabs.take(8).unwrap().unwrap()).collect();
    slabs.lock().peak.since = Instant::now().checked_sub(2 * HOLD);
    drop(pieces);
    check(slabs);
    assert!(slabs.lock().idle <= IDLE);
}

#[test]
fn rests_of_many_slabs_do_not_hide_the_room_of_others() {
    let slabs = slabs();
    // Two granules of each slab are left.
    let mut pieces: Vec<_> = (0..18 * 40).map(|_| slabs.take(7).unwrap().unwrap()).collect();
    assert_eq!(slabs.lock().all.len(), 40);
    let last = pieces.iter().map(|piece| piece.slab).max().unwrap();
    pieces.retain(|piece| piece.slab != last);
    for _ in 0..100 {
        pieces.push(slabs.take(7).unwrap().unwrap());
        assert_eq!(pieces.pop().unwrap().slab, last);
    }
    check(slabs);
}

#[test]
fn the_longest_piece_that_there_is_room_for_is_found() {
    assert_eq!((room(Bits::MAX), room(0), room(Bits::MAX << 7)), (0, MOST_GRANULES, 7));
    assert_eq!(room(!(0b11 | 0b1111 << 60 | 0b1 << 127)), 4);
}

#[test]
fn the_first_run_that_is_long_enough_is_found() {
    assert_eq!((free_run(0, 128), free_run(0, 1)), (Some(0), Some(0)));
    assert_eq!((free_run(Bits::MAX, 1), free_run(1, 128)), (None, None));
    assert_eq!(free_run(0b1_0010_1001, 3), Some(9));
    assert_eq!(free_run(0b1_0000_0001, 7), Some(1));
    assert_eq!((free_run(!(0b111 << 125), 3), free_run(!(0b111 << 125), 4)), (Some(125), None));
}

#[test]
fn sizes_that_are_rare_or_small_have_no_piece() {
    assert!(take(0).unwrap().is_none() && take((64 << 10) - 1).unwrap().is_none());
    assert!(take((512 << 10) + 1).unwrap().is_none() && take(usize::MAX).unwrap().is_none());
    let piece = take((64 << 10) + 1).unwrap().unwrap();
    assert_eq!(piece.capacity(), (64 << 10) + GRANULE_BYTES);
    assert_eq!(piece.as_slice().as_ptr().align_offset(GRANULE_BYTES), 0);
}
