//! Shuffle: the bytes of elements, sorted by their place in an element.

/// Puts the bytes of elements back, which were sorted by their place in an element; bytes behind the last element stay.
pub(super) fn undo(bytes: &[u8], element: usize) -> Vec<u8> {
    let count = bytes.len().checked_div(element).unwrap_or(0);
    if element <= 1 || count <= 1 {
        return bytes.to_vec();
    }
    let mut out = vec![0; bytes.len()];
    let whole = count.saturating_mul(element);
    match element {
        2 => interleave::<2>(bytes, count, &mut out),
        4 => interleave::<4>(bytes, count, &mut out),
        8 => interleave::<8>(bytes, count, &mut out),
        _ => {
            for (place, column) in bytes.chunks_exact(count).take(element).enumerate() {
                let targets = out.iter_mut().skip(place).step_by(element);
                targets.zip(column).for_each(|(to, from)| *to = *from);
            }
        }
    }
    let (Some(to), Some(from)) = (out.get_mut(whole..), bytes.get(whole..)) else { return out };
    to.copy_from_slice(from);
    out
}

fn interleave<const N: usize>(bytes: &[u8], count: usize, out: &mut [u8]) {
    let mut columns = [&[][..]; N];
    columns.iter_mut().zip(bytes.chunks_exact(count)).for_each(|(to, from)| *to = from);
    for (place, element) in out.as_chunks_mut::<N>().0.iter_mut().take(count).enumerate() {
        for (to, column) in element.iter_mut().zip(&columns) {
            *to = column.get(place).copied().unwrap_or(0);
        }
    }
}

/// What shuffle makes of elements.
#[cfg(test)]
pub(super) fn shuffled(plain: &[u8], element: usize) -> Vec<u8> {
    let (whole, rest) = plain.split_at(plain.len() / element * element);
    let column = |place| whole.iter().skip(place).step_by(element).copied();
    (0..element).flat_map(column).chain(rest.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_were_sorted_by_place_are_elements_again() {
        for element in [1, 2, 3, 4, 8, 16] {
            let plain: Vec<u8> = (0..element * 5 + 1).map(|i| i as u8).collect();
            assert_eq!(undo(&shuffled(&plain, element), element), plain, "{element}");
        }
        assert_eq!(undo(b"acbd", 2), b"abcd");
    }
}
