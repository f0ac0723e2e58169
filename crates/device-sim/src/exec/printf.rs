//! C's `printf` as kernels use it (CUDA C++ Programming Guide, *Formatted output*).

/// Where the arguments come from, in their order.
pub(super) trait Source {
    /// The next argument of 4 or 8 bytes.
    fn integer(&mut self, bytes: u32) -> u64;
    /// The next argument, a pointer to a string.
    fn string(&mut self) -> Vec<u8>;
}

/// Arguments that one call may have (CUDA C++ Programming Guide).
const MOST_ARGUMENTS: u32 = 32;
/// Largest width and precision; larger ones are cut to it.
const WIDEST: usize = 4096;

/// What stands between `%` and the conversion's letter.
#[derive(Default, Clone)]
struct Spec {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    /// Bytes of an integer argument: 1, 2, 4 or 8. A float is always a double.
    size: u32,
}

/// The formatted text, and the number of arguments used.
pub(super) fn format(format: &[u8], arguments: &mut impl Source) -> (Vec<u8>, u32) {
    let mut out = Vec::new();
    let mut used = 0;
    let mut at = 0;
    while at < format.len() {
        if format[at] != b'%' {
            out.push(format[at]);
            at += 1;
            continue;
        }
        let start = at;
        at += 1;
        let mut spec = Spec { size: 4, ..Spec::default() };
        while let Some(flag) = format.get(at) {
            match flag {
                b'-' => spec.left = true,
                b'+' => spec.plus = true,
                b' ' => spec.space = true,
                b'#' => spec.alternate = true,
                b'0' => spec.zero = true,
                _ => break,
            }
            at += 1;
        }
        let mut number = |at: &mut usize, arguments: &mut dyn Source| -> i64 {
            if format.get(*at) == Some(&b'*') {
                *at += 1;
                used += 1;
                return i64::from(arguments.integer(4) as i32);
            }
            let mut value = 0i64;
            while let Some(digit) = format.get(*at).filter(|c| c.is_ascii_digit()) {
                value = (value * 10 + i64::from(digit - b'0')).min(WIDEST as i64);
                *at += 1;
            }
            value
        };
        let width = number(&mut at, arguments);
        spec.left |= width < 0;
        spec.width = (width.unsigned_abs() as usize).min(WIDEST);
        if format.get(at) == Some(&b'.') {
            at += 1;
            let precision = number(&mut at, arguments);
            spec.precision = usize::try_from(precision).ok().map(|p| p.min(WIDEST));
        }
        loop {
            match format.get(at) {
                Some(b'h') => spec.size = if spec.size == 2 { 1 } else { 2 },
                Some(b'l' | b'j' | b'z' | b't' | b'q' | b'L') => spec.size = 8,
                _ => break,
            }
            at += 1;
        }
        let Some(conversion) = format.get(at).copied() else {
            out.extend_from_slice(&format[start..]);
            break;
        };
        at += 1;
        if conversion == b'%' {
            out.push(b'%');
            continue;
        }
        if !b"diuoxXcspfFeEgGaAn".contains(&conversion) || used >= MOST_ARGUMENTS {
            out.extend_from_slice(&format[start..at]);
            continue;
        }
        used += 1;
        convert(&mut out, &spec, conversion, arguments);
    }
    (out, used)
}

/// Appends the next argument, formatted.
fn convert(out: &mut Vec<u8>, spec: &Spec, conversion: u8, arguments: &mut impl Source) {
    let wide = spec.size.max(4);
    match conversion {
        b'd' | b'i' => {
            let raw = arguments.integer(wide);
            let value = match spec.size {
                8 => raw as i64,
                4 => i64::from(raw as i32),
                2 => i64::from(raw as i16),
                _ => i64::from(raw as i8),
            };
            integer(out, spec, sign(spec, value < 0), "", value.unsigned_abs().to_string());
        }
        b'u' | b'o' | b'x' | b'X' => {
            let raw = arguments.integer(wide);
            let value = if spec.size == 8 { raw } else { raw & ((1 << (8 * spec.size)) - 1) };
            let (prefix, digits) = match conversion {
                b'u' => ("", value.to_string()),
                b'o' => ("", format!("{}{value:o}", if spec.alternate && value != 0 { "0" } else { "" })),
                b'x' => (if spec.alternate && value != 0 { "0x" } else { "" }, format!("{value:x}")),
                _ => (if spec.alternate && value != 0 { "0X" } else { "" }, format!("{value:X}")),
            };
            integer(out, spec, "", prefix, digits);
        }
        b'c' => {
            let value = arguments.integer(4) as u8;
            pad(out, spec, &[value]);
        }
        b's' => {
            let mut text = arguments.string();
            if let Some(most) = spec.precision {
                text.truncate(most);
            }
            pad(out, spec, &text);
        }
        b'p' => {
            let value = arguments.integer(8);
            let text = if value == 0 { "(nil)".to_owned() } else { format!("{value:#x}") };
            pad(out, spec, text.as_bytes());
        }
        // `%n` writes nothing; its argument is skipped.
        b'n' => {
            arguments.integer(8);
        }
        _ => {
            let value = f64::from_bits(arguments.integer(8));
            float(out, spec, conversion, value);
        }
    }
}

/// The sign before a number.
fn sign(spec: &Spec, negative: bool) -> &'static str {
    if negative {
        "-"
    } else if spec.plus {
        "+"
    } else if spec.space {
        " "
    } else {
        ""
    }
}

/// Appends text, padded with spaces to the width.
fn pad(out: &mut Vec<u8>, spec: &Spec, text: &[u8]) {
    let fill = spec.width.saturating_sub(text.len());
    if !spec.left {
        out.resize(out.len() + fill, b' ');
    }
    out.extend_from_slice(text);
    if spec.left {
        out.resize(out.len() + fill, b' ');
    }
}

/// Appends sign, prefix and digits; with `zeros`, zeros between prefix and digits fill the width.
fn assemble(out: &mut Vec<u8>, spec: &Spec, zeros: bool, sign: &str, prefix: &str, digits: &str) {
    let length = sign.len() + prefix.len() + digits.len();
    let fill = if zeros && !spec.left { spec.width.saturating_sub(length) } else { 0 };
    let text = format!("{sign}{prefix}{}{digits}", "0".repeat(fill));
    pad(out, spec, text.as_bytes());
}

/// Appends an integer, with zeros up to the precision.
fn integer(out: &mut Vec<u8>, spec: &Spec, sign: &str, prefix: &str, digits: String) {
    let digits = match spec.precision {
        Some(0) if digits == "0" => String::new(),
        Some(least) => format!("{}{digits}", "0".repeat(least.saturating_sub(digits.len()))),
        None => digits,
    };
    assemble(out, spec, spec.zero && spec.precision.is_none(), sign, prefix, &digits);
}

/// Appends a floating-point number.
fn float(out: &mut Vec<u8>, spec: &Spec, conversion: u8, value: f64) {
    let sign = sign(spec, value.is_sign_negative());
    let upper = conversion.is_ascii_uppercase();
    let magnitude = value.abs();
    if !value.is_finite() {
        let text = if value.is_nan() { "nan" } else { "inf" };
        let text = if upper { text.to_uppercase() } else { text.to_owned() };
        return assemble(out, spec, false, sign, "", &text);
    }
    let (prefix, digits) = match conversion.to_ascii_lowercase() {
        b'f' => ("", fixed(magnitude, spec.precision.unwrap_or(6), spec.alternate)),
        b'e' => ("", scientific(magnitude, spec.precision.unwrap_or(6), spec.alternate)),
        b'g' => ("", general(magnitude, spec.precision.unwrap_or(6).max(1), spec.alternate)),
        _ => ("0x", hexadecimal(magnitude, spec.precision)),
    };
    let (prefix, digits) = if upper { (prefix.to_uppercase(), digits.to_uppercase()) } else { (prefix.to_owned(), digits) };
    assemble(out, spec, spec.zero, sign, &prefix, &digits);
}

/// `%f`.
fn fixed(value: f64, precision: usize, point: bool) -> String {
    let text = format!("{value:.precision$}");
    if point && precision == 0 { text + "." } else { text }
}

/// `%e`. Rust writes `1.5e-7`; C writes a sign and at least two digits of the exponent.
fn scientific(value: f64, precision: usize, point: bool) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    let point = if point && precision == 0 { "." } else { "" };
    format!("{mantissa}{point}e{sign}{digits:0>2}")
}

/// `%g`: the shorter of `%e` and `%f`, without trailing zeros.
fn general(value: f64, precision: usize, alternate: bool) -> String {
    let rounded = format!("{value:.*e}", precision - 1);
    let exponent: i32 = rounded.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    let text = if exponent < -4 || exponent >= precision as i32 {
        scientific(value, precision - 1, alternate)
    } else {
        fixed(value, (precision as i32 - 1 - exponent).max(0) as usize, alternate)
    };
    if alternate {
        return text;
    }
    let (number, tail) = match text.find('e') {
        Some(at) => text.split_at(at),
        None => (text.as_str(), ""),
    };
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number}{tail}")
}

/// `%a` behind the `0x`: hexadecimal digits of the fraction, rounded to even as the C library does.
fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    let bits = value.to_bits();
    let (biased, mut fraction) = ((bits >> 52) as i32, bits & ((1 << 52) - 1));
    let mut lead = u64::from(biased != 0);
    let exponent = if value == 0.0 { 0 } else { biased.max(1) - 1023 };
    if let Some(precision) = precision.filter(|p| *p < 13) {
        let drop = 52 - 4 * precision as u32;
        let whole = lead << 52 | fraction;
        let (kept, rest, half) = (whole >> drop, whole & ((1 << drop) - 1), 1u64 << (drop - 1));
        let rounded = (kept + u64::from(rest > half || (rest == half && kept & 1 != 0))) << drop;
        (lead, fraction) = (rounded >> 52, rounded & ((1 << 52) - 1));
    }
    let all = format!("{fraction:013x}");
    let digits = match precision {
        Some(precision) => format!("{all:0<precision$}")[..precision].to_owned(),
        None => all.trim_end_matches('0').to_owned(),
    };
    let point = if digits.is_empty() { "" } else { "." };
    format!("{lead}{point}{digits}p{exponent:+}")
}
