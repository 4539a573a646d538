//! Any list of members comes back as it was written.

use super::writer::Block;
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Planned {
    name: String,
    bytes: Vec<u8>,
    dialect: u8,
    mode: u16,
    seconds: i64,
    nanoseconds: u32,
}

fn planned() -> impl Strategy<Value = Planned> {
    ("[a-c]{1,3}(/[a-z]{1,80}){0,4}", vec(any::<u8>(), 0..1500), 0..4u8, 0..0o10000u16)
        .prop_flat_map(|(name, bytes, dialect, mode)| {
            (
                Just((name, bytes, dialect, mode)),
                -10_000_000_000..10_000_000_000i64,
                0..1_000_000_000u32,
            )
        })
        .prop_map(|((name, bytes, dialect, mode), seconds, nanoseconds)| {
            let nanoseconds = if dialect == 3 { nanoseconds } else { 0 };
            let seconds =
                if dialect == 2 || dialect == 3 { seconds } else { seconds.abs() % (1 << 33) };
            Planned { name, bytes, dialect, mode, seconds, nanoseconds }
        })
}

/// Writes V7, ustar, GNU or pax; values that the first two cannot hold are written as GNU does.
fn write(writer: &mut Writer, plan: &Planned) {
    let name = plan.name.as_bytes();
    let mut block = Block::new(b'0', &name[..name.len().min(100)], plan.bytes.len() as u64);
    block.set(100, format!("{:07o}\0", plan.mode).as_bytes());
    block.set(136, format!("{:011o}\0", plan.seconds.max(0)).as_bytes());
    let cut = name.iter().rposition(|byte| *byte == b'/');
    match (plan.dialect, cut) {
        (3, _) => {
            // The nanoseconds count from the full second below, so both are added before they are written.
            let whole = i128::from(plan.seconds) * 1_000_000_000 + i128::from(plan.nanoseconds);
            let (sign, whole) = if whole < 0 { ("-", -whole) } else { ("", whole) };
            let time = format!("{sign}{}.{:09}", whole / 1_000_000_000, whole % 1_000_000_000);
            writer.pax(b'x', &[("path", name), ("mtime", time.as_bytes())]);
            block.ustar();
        }
        (1, Some(cut)) if cut <= 155 && name.len() - cut <= 101 => {
            block.0[..100].fill(0);
            block.ustar().set(0, &name[cut + 1..]).set(345, &name[..cut]);
        }
        _ => {
            if name.len() > 100 {
                writer.long(b'L', name);
            }
            let mut time = [if plan.seconds < 0 { 0xff } else { 0 }; 12];
            time[4..].copy_from_slice(&plan.seconds.to_be_bytes());
            time[0] |= 0x80;
            block.gnu().set(136, &time);
        }
    }
    writer.block(&block).data(&plan.bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_members_come_back_with_names_bytes_modes_and_times(plans in vec(planned(), 1..20)) {
        let mut writer = Writer::default();
        plans.iter().for_each(|plan| write(&mut writer, plan));
        let bytes = writer.end();
        let container = opened(&bytes).unwrap();
        let expected: Vec<_> = plans.iter().map(|plan| file(&plan.name, &plan.bytes)).collect();
        prop_assert_eq!(shown(container.as_ref(), &bytes), expected);
        for (index, plan) in plans.iter().enumerate() {
            let found = container.attributes(index as u64).unwrap();
            prop_assert_eq!(found.mode, Some(plan.mode));
            prop_assert_eq!(found.modified, Some((plan.seconds, plan.nanoseconds)));
        }
    }

    #[test]
    fn any_bytes_behind_a_header_do_no_harm(kind: u8, size in 0..5000u64, noise in vec(any::<u8>(), 0..4000)) {
        let mut block = Block::new(kind, b"name", size);
        let bytes = [&block.gnu().sealed()[..], &noise].concat();
        for container in [opened(&bytes), salvaged(&bytes)].into_iter().flatten() {
            shown(container.as_ref(), &bytes);
        }
    }
}
