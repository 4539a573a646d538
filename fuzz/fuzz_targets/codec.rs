//! Any bytes as a stream of any codec: whole, in steps, through checkpoints and through an index. All
//! ways agree, nothing panics, nothing is stuck.

#![no_main]

use ffrfs::format::codec::{Codec, decode, decoder};
use ffrfs::format::stream::StreamIndex;
use ffrfs::format::{MemorySource, Progress, Checkpoint};
use libfuzzer_sys::fuzz_target;

const CODECS: [Codec; 9] = [
    Codec::Deflate,
    Codec::Deflate64,
    Codec::Bzip2,
    Codec::Lzma,
    Codec::Xz,
    Codec::Zstd,
    Codec::Gzip,
    Codec::Zlib,
    Codec::Ppmd,
];
const MAX_BYTES: usize = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let [codec, piece, room, stored @ ..] = input else { return };
    let codec = CODECS[usize::from(*codec) % CODECS.len()];
    if codec == Codec::Ppmd {
        // A model of the least memory, as the cost of making the model is not tested.
        let mut stored = stored.to_vec();
        if let [low, high, ..] = &mut stored[..] {
            (*low, *high) = (*low & 0xf, *high & 0xf0);
        }
        let _ = decode(codec, &stored, &mut vec![0; usize::from(*piece) * 64]);
        return;
    }
    let sizes = (usize::from(*piece) + 1, usize::from(*room) * 16 + 1);
    let Ok((whole, checkpoint)) = steps(codec, None, stored, sizes) else {
        let _ = decode(codec, stored, &mut vec![0; sizes.1]);
        return;
    };
    if whole.len() > MAX_BYTES {
        return;
    }
    if let Some(checkpoint) = checkpoint {
        let (rest, _) = steps(codec, Some(&checkpoint), stored, sizes).expect("it decoded before");
        assert!(rest == whole[checkpoint.decoded_bytes as usize..]);
    }
    let mut out = vec![0; whole.len()];
    if codec == Codec::Deflate64 {
        // The decoder takes a tree with too many codes; its output then depends on the pieces: the zip's CRC-32 finds that.
        let _ = decode(codec, stored, &mut out);
        return;
    }
    if decode(codec, stored, &mut out).is_ok() && codec != Codec::Deflate {
        // In raw deflate, references before the start are zeros to one decoder, an error to the other.
        assert!(out == whole);
    }
    indexed(codec, stored, &whole, sizes.1 as u64);
});

/// The decoded bytes, and the last checkpoint.
fn steps(
    codec: Codec,
    from: Option<&Checkpoint>,
    stored: &[u8],
    (piece, room): (usize, usize),
) -> Result<(Vec<u8>, Option<Checkpoint>), String> {
    let mut decoder = decoder(codec, from)?.expect("it goes in steps");
    let (mut out, mut checkpoint) = (Vec::new(), None);
    let mut buf = vec![0; room];
    let mut at = from.map_or(0, |r| r.stored_bytes as usize);
    loop {
        let input = &stored[at..stored.len().min(at + piece)];
        let is_last = at + input.len() == stored.len();
        let step = decoder.decode(input, &mut buf, is_last)?;
        at += step.taken;
        out.extend_from_slice(&buf[..step.given]);
        if step.is_end || out.len() > MAX_BYTES {
            return Ok((out, checkpoint));
        }
        assert!(step != Progress::default(), "it is stuck");
        checkpoint = decoder.checkpoint().or(checkpoint);
    }
}

fn indexed(codec: Codec, stored: &[u8], whole: &[u8], interval_bytes: u64) {
    let source = MemorySource::new("fuzz", stored.to_vec());
    let Ok(index) = StreamIndex::build(&source, codec, interval_bytes, &mut |_, _| Ok(())) else {
        return;
    };
    let index = StreamIndex::read(&index.write()).expect("it was just written");
    assert_eq!(index.decoded_bytes(), whole.len() as u64);
    for number in 0..index.len() {
        let interval = index.nth(number).expect("it is one of them");
        let range = interval.decoded.start as usize..interval.decoded.end as usize;
        let bytes = &stored[interval.stored.start as usize..interval.stored.end as usize];
        let mut out = vec![0; range.len()];
        index.decode(number, bytes, &mut out).expect("it decoded before");
        assert!(out == whole[range]);
    }
}
