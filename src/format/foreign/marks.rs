//! The marks by which files of other formats are recognised, and the advice for each. Imports nothing.

/// The kind of a file, with its article, as in "is an ISO 9660 image"; and the advice for its owner.
pub(super) type Named = (&'static str, &'static str);

pub(super) const REPACK: &str = "unpack it, and pack the files with `ffrfs pack`, zip or tar";
pub(super) const RECOMPRESS: &str = "decompress it, or compress it with xz or zstd";
pub(super) const DOWNLOAD: &str = "the download has failed: look at its text";
pub(super) const MOUNT: &str = "mount it with mount(8), or unpack it";
pub(super) const ATTACH: &str = "attach it with qemu-nbd and mount that, or unpack it";
pub(super) const PARTITIONS: &str = "attach it with losetup -P, and mount a partition of it";
pub(super) const AGE: &str = "decrypt it with age -d";
pub(super) const GPG: &str = "decrypt it with gpg -d";
pub(super) const KEEP: &str =
    "it is one sample: pack a directory of them with `ffrfs pack`, zip or tar";
pub(super) const LOAD: &str = "it is no dataset: programs that run models load it as it is";
pub(super) const EXPORT: &str =
    "write its samples to files, and pack them with `ffrfs pack`, zip or tar";

/// The offset of a mark, the mark, the file's kind, and the advice; as the formats' own specifications give the marks.
pub(super) type Row = (usize, &'static [u8], &'static str, &'static str);

pub(super) const ROWS: &[Row] = &[
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", REPACK),
    (0, b"Rar!\x1a\x07", "a RAR archive", REPACK),
    (0, b"MSCF\0\0\0\0", "a cabinet file", REPACK),
    (0, b"MSWIM\0\0\0", "a WIM image", REPACK),
    (0, b"!<arch>\n", "an ar archive", REPACK),
    (0, b"070701", "a cpio archive", REPACK),
    (0, b"070702", "a cpio archive", REPACK),
    (0, b"070707", "a cpio archive", REPACK),
    (0, b"\xc7\x71", "a cpio archive", REPACK),
    (0, b"\xed\xab\xee\xdb", "an RPM package", REPACK),
    (0, b"xar!", "a xar archive", REPACK),
    (0, b"\x04\x22\x4d\x18", "an lz4 file", "decompress it, or compress it with zstd"),
    (0, b"\x02\x21\x4c\x18", "an lz4 file", "decompress it, or compress it with zstd"),
    (0, b"LZIP\x01", "an lzip file", "decompress it, or compress it with zstd or xz"),
    (0, b"\x89LZO\0\r\n\x1a\n", "an lzop file", "decompress it, or compress it with zstd"),
    (0, b"\x1f\x9d", "a file of compress(1)", "decompress it, or compress it with zstd or gzip"),
    (0, b"age-encryption.org/", "a file encrypted with age", AGE),
    (0, b"-----BEGIN AGE ENCRYPTED FILE-----", "a file encrypted with age", AGE),
    (0, b"-----BEGIN PGP MESSAGE-----", "an OpenPGP message", GPG),
    // Messages encrypted with a password, as gpg writes them: AES-256 and AES-128.
    (0, b"\x8c\x0d\x04\x09\x03", "an OpenPGP message", GPG),
    (0, b"\x8c\x0d\x04\x07\x03", "an OpenPGP message", GPG),
    (0, b"Salted__", "a file encrypted with OpenSSL", "decrypt it with openssl enc -d"),
    (0, b"LUKS\xba\xbe", "a LUKS image", "open it with cryptsetup, and mount that"),
    (0, b"hsqs", "a squashfs image", MOUNT),
    (0, b"sqsh", "a squashfs image of a big-endian machine", REPACK),
    (0, b"DWARFS", "a dwarfs image", "mount it with dwarfs, or unpack it with dwarfsextract"),
    (1024, b"\xe2\xe1\xf5\xe0", "an erofs image", MOUNT),
    (1080, b"\x53\xef", "an ext2, ext3 or ext4 image", MOUNT),
    (0, b"XFSB", "an XFS image", MOUNT),
    (65_600, b"_BHRfS_M", "a btrfs image", MOUNT),
    (3, b"NTFS    ", "an NTFS image", MOUNT),
    (3, b"EXFAT   ", "an exFAT image", MOUNT),
    (0, b"QFI\xfb", "a qcow2 image", ATTACH),
    (0, b"KDMV", "a VMDK image", ATTACH),
    (64, b"\x7f\x10\xda\xbe", "a VDI image", ATTACH),
    (0, b"conectix", "a VHD image", ATTACH),
    (0, b"vhdxfile", "a VHDX image", ATTACH),
    (32_769, b"CD001", "an ISO 9660 image", MOUNT),
    (32_769, b"BEA01", "a UDF image", MOUNT),
    // GPT stands behind ISO 9660 and UDF, as images for discs and disks have both; sectors have 512 or 4,096 bytes.
    (512, b"EFI PART", "a disk image with partitions (GPT)", PARTITIONS),
    (4096, b"EFI PART", "a disk image with partitions (GPT)", PARTITIONS),
    (0, b"ARROW1\0\0", "an Arrow file", EXPORT),
    (0, b"ORC", "ORC", EXPORT),
    (0, b"FEA1", "Feather of version 1", EXPORT),
    (0, b"Obj\x01", "Avro", EXPORT),
    (0, b"SEQ\x04", "a SequenceFile of Hadoop", EXPORT),
    (0, b"SEQ\x05", "a SequenceFile of Hadoop", EXPORT),
    (0, b"SEQ\x06", "a SequenceFile of Hadoop", EXPORT),
    (0, b"CDF\x01", "NetCDF of the classic form", EXPORT),
    (0, b"CDF\x02", "NetCDF of the classic form", EXPORT),
    (0, b"CDF\x05", "NetCDF of the classic form", EXPORT),
    (0, b"MATLAB 5.0 MAT-file", "a MATLAB file of version 5", EXPORT),
    (0, b"GGUF", "a model in GGUF", LOAD),
    (0, b"SIMPLE  =                    T", "a FITS file", EXPORT),
    (128, b"DICM", "a DICOM image", KEEP),
    (0, b"\0\0\0\x0cJXL \r\n\x87\n", "a JPEG XL image", KEEP),
    (0, b"\xde\xc0\xef\xbe", "the lock file of an LMDB database", "name its data.mdb"),
    (12, b"\xde\xc0\xef\xbe", "an LMDB database of a 32-bit machine", EXPORT),
    (16, b"\xbe\xef\xc0\xde", "an LMDB database of a big-endian machine", EXPORT),
    (0, b"SQLite format 3\0", "an SQLite database", EXPORT),
    (
        0,
        b"version https://git-lfs.github.com/",
        "only a pointer of Git LFS to the file",
        "git lfs pull fetches the file",
    ),
    (0, b"\x7fELF", PROGRAM.0, PROGRAM.1),
];

pub(super) const PROGRAM: Named = ("a program", "name the container");

/// Marks with their offsets, the file's kind, and the advice.
pub(super) type Combined = (&'static [(usize, &'static [u8])], &'static str, &'static str);

/// Files that are recognised by several marks together, all of them in the head.
pub(super) const COMBINED: &[Combined] = &[
    // The mark of a message, a length of its metadata below 64 KiB, and a table that begins near.
    (&[(0, b"\xff\xff\xff\xff"), (6, b"\0\0"), (9, b"\0\0\0")], "a stream of Arrow", EXPORT),
    (&[(0, b"BM"), (6, b"\0\0\0\0")], "a BMP image", KEEP),
    // The usual properties and a whole dictionary, with an unknown length or a length below 2^48 bytes.
    (&[(0, b"\x5d\0\0"), (5, &[0xff; 8])], "an lzma file", RECOMPRESS),
    (&[(0, b"\x5d\0\0"), (11, b"\0\0")], "an lzma file", RECOMPRESS),
    // A session key for an RSA key of 2048, 3072 and 4096 bits, and for a key of Curve25519.
    (&[(0, b"\x85\x01\x0c\x03"), (12, b"\x01")], "an OpenPGP message", GPG),
    (&[(0, b"\x85\x01\x8c\x03"), (12, b"\x01")], "an OpenPGP message", GPG),
    (&[(0, b"\x85\x02\x0c\x03"), (12, b"\x01")], "an OpenPGP message", GPG),
    (&[(0, b"\x84\x5e\x03"), (11, b"\x12")], "an OpenPGP message", GPG),
    (&[(54, b"FAT12   "), (510, b"\x55\xaa")], "a FAT image", MOUNT),
    (&[(54, b"FAT16   "), (510, b"\x55\xaa")], "a FAT image", MOUNT),
    (&[(82, b"FAT32   "), (510, b"\x55\xaa")], "a FAT image", MOUNT),
    // The method stands between the marks: `-lh5-`.
    (&[(2, b"-lh"), (6, b"-")], "an LZH archive", REPACK),
    // A header below 256 bytes, that of the archive and not of a file in it.
    (&[(0, b"\x60\xea"), (3, b"\0"), (10, b"\x02")], "an ARJ archive", REPACK),
];

/// At least the length of any mark.
pub(super) const LONGEST_MARK: usize = 40;
