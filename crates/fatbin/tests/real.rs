//! Files that the compiler made (see data/scale.cu), in all its compression modes.

mod dice;

use cumux_fatbin::{Compression, Error, Image, ImageKind, Length, Variant, best_compiled, best_ptx, images, sections, total_len};
use dice::Dice;

const BALANCE: &[u8] = include_bytes!("data/balance.fatbin");
const SIZE: &[u8] = include_bytes!("data/size.fatbin");
const SPEED: &[u8] = include_bytes!("data/speed.fatbin");
const NONE: &[u8] = include_bytes!("data/none.fatbin");
const CUBIN: &[u8] = include_bytes!("data/sm_75.cubin");

const LIMIT: u64 = 1 << 20;

fn shape(image: &Image<'_>) -> (ImageKind, u32, Variant, Compression) {
    (image.kind, image.arch, image.variant, image.compression)
}

#[test]
fn every_compression_mode_yields_the_same_images() {
    use Compression as C;
    let modes = [(BALANCE, C::None, C::Zstd), (SIZE, C::Zstd, C::Zstd), (SPEED, C::None, C::Lz4), (NONE, C::None, C::None)];
    let plain = images(NONE).unwrap();
    for (file, compiled, text) in modes {
        let found = images(file).unwrap();
        let shapes: Vec<_> = found.iter().map(shape).collect();
        assert_eq!(
            shapes,
            [(ImageKind::Elf, 75, Variant::Any, compiled), (ImageKind::Ptx, 75, Variant::Any, text), (ImageKind::Ptx, 90, Variant::Exact, text),]
        );
        for (image, same) in found.iter().zip(&plain) {
            assert_eq!(image.bytes(LIMIT), same.bytes(LIMIT));
        }
        assert_eq!(found[1].version, (9, 0));
    }
    let text = plain[1].bytes(LIMIT).unwrap();
    let text = std::str::from_utf8(&text).unwrap();
    assert!(text.contains(".target sm_75") && text.contains(".entry scale("));
    assert!(!text.contains('\0'));
    assert_eq!(plain[0].bytes(LIMIT).unwrap(), CUBIN);
}

#[test]
fn lengths_are_found_from_the_start_of_the_data() {
    for file in [BALANCE, SIZE, SPEED, NONE] {
        let length = Length::Known(file.len() as u64);
        assert_eq!(total_len(&file[..16]), Ok(length));
        assert_eq!(total_len(&file[..4]), Ok(Length::NeedPrefix(16)));
    }
    // A compiled image tells its length in rounds, and no round asks for more than the file.
    let mut prefix = 4;
    let rounds = loop {
        match total_len(&CUBIN[..prefix]).unwrap() {
            Length::NeedPrefix(more) => {
                assert!(more as usize > prefix && more as usize <= CUBIN.len());
                prefix = more as usize;
            }
            other => break other,
        }
    };
    assert_eq!(rounds, Length::Known(CUBIN.len() as u64));
    assert_eq!(total_len(b"\n\n//\n.version 9.0"), Ok(Length::ToZeroByte));
}

#[test]
fn several_containers_may_follow_one_another() {
    let mut both = NONE.to_vec();
    both.extend(BALANCE);
    assert_eq!(images(&both).unwrap().len(), 6);
    both.extend([0; 24]);
    assert_eq!(images(&both).unwrap().len(), 6);
    let at = both.len() as u64;
    both.extend(b"rubbish, 16 bytes");
    assert_eq!(images(&both), Err(Error::Corrupt { what: "fatbin magic", at, found: u64::from(u32::from_le_bytes(*b"rubb")), expected: "0xBA55ED50" }));
}

/// The header of an entry of nvcc 13.0 with `-maxrregcount=32`, and a text behind it.
#[test]
fn options_for_the_compiler_are_read() {
    let text = b".version 8.0\n.target sm_75\n.address_size 64\n\0\0\0\0";
    let with = |options: &[u8], offset: u32, length: u32| {
        let mut entry = Vec::new();
        entry.extend([1_u16, 0x0101].into_iter().flat_map(u16::to_le_bytes));
        entry.extend((0x58 + options.len() as u32).to_le_bytes());
        entry.extend((text.len() as u64).to_le_bytes());
        entry.extend([0_u32, 0x40].into_iter().flat_map(u32::to_le_bytes));
        entry.extend([0_u16, 9].into_iter().flat_map(u16::to_le_bytes));
        entry.extend([75_u32, 0, 0].into_iter().flat_map(u32::to_le_bytes));
        entry.extend([0x11_u64, 0, 0].into_iter().flat_map(u64::to_le_bytes));
        entry.extend([offset, length].into_iter().flat_map(u32::to_le_bytes));
        entry.resize(0x58, 0);
        entry.extend(options);
        entry.extend(text);
        let mut bytes = Vec::new();
        bytes.extend(0xba55_ed50_u32.to_le_bytes());
        bytes.extend([1_u16, 16].into_iter().flat_map(u16::to_le_bytes));
        bytes.extend((entry.len() as u64).to_le_bytes());
        bytes.extend(entry);
        bytes
    };
    let option = |bytes: &[u8], name: &str| images(bytes).unwrap()[0].compiler_option(name).map(str::to_owned);
    let bytes = with(b"-O0  -maxrregcount=32 --fmad false ", 0x58, 35);
    assert_eq!(option(&bytes, "maxrregcount").as_deref(), Some("32"));
    assert_eq!(option(&bytes, "fmad").as_deref(), Some("false"));
    assert_eq!(option(&bytes, "fma"), None);
    assert_eq!(images(&bytes).unwrap()[0].options.split_whitespace().next(), Some("-O0"));
    // Places outside of the header, and what is no text.
    for damaged in [with(b"-O0 ", 0x58, 400), with(b"-O0 ", u32::MAX, 4), with(b"\xff\xff\xff\xff", 0x58, 4)] {
        assert_eq!(images(&damaged).unwrap()[0].options, "");
    }
}

#[test]
fn a_text_is_found_again_with_what_its_compiler_is_told() {
    for (text, options) in [(&b".version 9.0\n"[..], "--fmad=false -O0"), (b"", ""), (b"exactly8", "-O0")] {
        let bytes = cumux_fatbin::write_text(text, 90, options).unwrap();
        assert_eq!(total_len(&bytes).unwrap(), Length::Known(bytes.len() as u64));
        let [image] = <[_; 1]>::try_from(images(&bytes).unwrap()).unwrap();
        assert_eq!((image.kind, image.arch, image.variant, image.options), (ImageKind::Ptx, 90, Variant::Any, options));
        let found = image.bytes(1000).unwrap();
        assert!(found.starts_with(text) && found[text.len()..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn the_best_image_is_the_newest_that_runs() {
    let found = images(SIZE).unwrap();
    let ptx = |device| best_ptx(&found, device).map(|image| image.arch);
    assert_eq!(ptx(70), None);
    assert_eq!(ptx(75), Some(75));
    assert_eq!(ptx(89), Some(75));
    assert_eq!(ptx(90), Some(90));
    // 90a is for 9.0 only.
    assert_eq!(ptx(100), Some(75));
    let compiled = |device| best_compiled(&found, device).map(|image| image.arch);
    assert_eq!(compiled(75), Some(75));
    assert_eq!(compiled(80), None);
}

#[test]
fn bare_images_are_one_image() {
    let found = images(CUBIN).unwrap();
    assert_eq!(found.iter().map(shape).collect::<Vec<_>>(), [(ImageKind::Elf, 75, Variant::Any, Compression::None)]);
    let text = b"//\n.version 9.0\n.target sm_90a, debug\n.address_size 64\n\0rest";
    let found = images(text).unwrap();
    assert_eq!((found[0].arch, found[0].variant), (90, Variant::Exact));
    assert_eq!(found[0].stored.last(), Some(&b'\n'));
}

#[test]
fn every_truncation_is_a_clear_error() {
    for file in [BALANCE, SIZE, SPEED, NONE] {
        for end in 0..file.len() {
            let error = images(&file[..end]).unwrap_err();
            let text = error.to_string();
            let cut = matches!(error, Error::Truncated { .. });
            assert!(cut || end < 4, "{end}: {text}");
        }
    }
    let text = images(&NONE[..100]).unwrap_err().to_string();
    let length = NONE.len();
    assert_eq!(text, format!("truncated fatbin container at byte 0: {length} bytes are needed, 100 are there; was the file cut off?"));
}

#[test]
fn limits_hold() {
    let found = images(SIZE).unwrap();
    let size = found[1].size;
    assert_eq!(found[1].bytes(size - 1), Err(Error::TooLarge { at: found[1].at, size, limit: size - 1 }));
    assert!(found[1].bytes(size).is_ok());
}

/// Announces another size than the data has.
fn with_announced_size(file: &[u8], entry: usize, size: u64) -> Vec<u8> {
    let at = images(file).unwrap()[entry].at as usize;
    let mut changed = file.to_vec();
    changed[at + 56..at + 64].copy_from_slice(&size.to_le_bytes());
    changed
}

#[test]
fn a_wrong_announced_size_is_an_error() {
    for file in [SIZE, SPEED] {
        let right = images(file).unwrap()[1].size;
        for wrong in [0, right - 1, right + 1, right * 8, u64::MAX / 2] {
            let changed = with_announced_size(file, 1, wrong);
            let found = images(&changed).unwrap();
            let error = found[1].bytes(u64::MAX).unwrap_err();
            assert!(matches!(error, Error::Unpack { .. }), "{wrong}: {error}");
        }
    }
}

#[test]
fn wrappers_and_strangers_are_named() {
    assert_eq!(images(&0x4662_43B1u32.to_le_bytes()), Err(Error::IsWrapper));
    let error = images(b"MZ\x90\0\x03\0\0\0\x04").unwrap_err();
    assert!(error.to_string().contains("4d 5a 90 00 03 00 00 00"));
    assert!(sections(b"\x7fELF but not really").is_err());
    assert_eq!(sections(CUBIN).unwrap(), []);
}

#[test]
fn changed_bytes_never_panic_nor_exceed_the_limit() {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let interesting = [0u8, 1, 2, 0x7f, 0x80, 0xff];
    let mut refused = 0;
    for round in 0..4000 {
        let source = [BALANCE, SIZE, SPEED, NONE, CUBIN][round % 5];
        let mut data = source.to_vec();
        for _ in 0..=dice.roll(6) {
            // Headers deserve most of the attention.
            let area = if dice.roll(2) == 0 { data.len() } else { 200 };
            let at = dice.roll(area.min(data.len()));
            data[at] = match dice.roll(2) {
                0 => interesting[dice.roll(interesting.len())],
                _ => dice.roll(256) as u8,
            };
        }
        if dice.roll(8) == 0 {
            data.truncate(dice.roll(data.len() + 1));
        }
        // What these say does not matter, only that they say it.
        let _ = total_len(&data);
        let _ = sections(&data);
        match images(&data) {
            Ok(found) => {
                for image in &found {
                    match image.bytes(LIMIT) {
                        Ok(bytes) => assert!(bytes.len() as u64 <= LIMIT),
                        Err(_) => refused += 1,
                    }
                }
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 400, "the changes are too harmless: {refused}");
}
