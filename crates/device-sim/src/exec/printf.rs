//! C's `printf` as kernels use it (CUDA C++ Programming Guide, *Formatted output*).

/// Where the arguments come from, in their order.
pub(super) trait ArgumentSource {
    /// The next argument of 4 or 8 bytes.
    fn next_integer(&mut self, bytes: u32) -> u64;
    /// The next argument, a pointer to a string.
    fn next_string(&mut self) -> Vec<u8>;
}

/// Arguments that one call may have (CUDA C++ Programming Guide).
const MAX_ARGUMENTS: u32 = 32;
/// Largest width and precision; larger ones are cut to it.
const MAX_WIDTH: usize = 4096;

/// What stands between `%` and the conversion's letter.
#[derive(Default, Clone)]
struct FormatSpec {
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
pub(super) fn format(format: &[u8], arguments: &mut impl ArgumentSource) -> (Vec<u8>, u32) {
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
        let mut spec = FormatSpec { size: 4, ..FormatSpec::default() };
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
        let mut number = |at: &mut usize, arguments: &mut dyn ArgumentSource| -> i64 {
            if format.get(*at) == Some(&b'*') {
                *at += 1;
                used += 1;
                return i64::from(arguments.next_integer(4) as i32);
            }
            let mut value = 0i64;
            while let Some(digit) = format.get(*at).filter(|c| c.is_ascii_digit()) {
                value = (value * 10 + i64::from(digit - b'0')).min(MAX_WIDTH as i64);
                *at += 1;
            }
            value
        };
        let width = number(&mut at, arguments);
        spec.left |= width < 0;
        spec.width = (width.unsigned_abs() as usize).min(MAX_WIDTH);
        if format.get(at) == Some(&b'.') {
            at += 1;
            let precision = number(&mut at, arguments);
            spec.precision = usize::try_from(precision).ok().map(|p| p.min(MAX_WIDTH));
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
        if !b"diuoxXcspfFeEgGaAn".contains(&conversion) || used >= MAX_ARGUMENTS {
            out.extend_from_slice(&format[start..at]);
            continue;
        }
        used += 1;
        convert(&mut out, &spec, conversion, arguments);
    }
    (out, used)
}

/// Appends the next argument, formatted.
fn convert(out: &mut Vec<u8>, spec: &FormatSpec, conversion: u8, arguments: &mut impl ArgumentSource) {
    let wide = spec.size.max(4);
    match conversion {
        b'd' | b'i' => {
            let raw = arguments.next_integer(wide);
            let value = match spec.size {
                8 => raw as i64,
                4 => i64::from(raw as i32),
                2 => i64::from(raw as i16),
                _ => i64::from(raw as i8),
            };
            integer(out, spec, sign(spec, value < 0), "", value.unsigned_abs().to_string());
        }
        b'u' | b'o' | b'x' | b'X' => {
            let raw = arguments.next_integer(wide);
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
            let value = arguments.next_integer(4) as u8;
            pad(out, spec, &[value]);
        }
        b's' => {
            let mut text = arguments.next_string();
            if let Some(most) = spec.precision {
                text.truncate(most);
            }
            pad(out, spec, &text);
        }
        b'p' => {
            let value = arguments.next_integer(8);
            let text = if value == 0 { "(nil)".to_owned() } else { format!("{value:#x}") };
            pad(out, spec, text.as_bytes());
        }
        // `%n` writes nothing; its argument is skipped.
        b'n' => {
            arguments.next_integer(8);
        }
        _ => {
            let value = f64::from_bits(arguments.next_integer(8));
            float(out, spec, conversion, value);
        }
    }
}

/// The sign before a number.
fn sign(spec: &FormatSpec, negative: bool) -> &'static str {
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
fn pad(out: &mut Vec<u8>, spec: &FormatSpec, text: &[u8]) {
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
fn assemble(out: &mut Vec<u8>, spec: &FormatSpec, zeros: bool, sign: &str, prefix: &str, digits: &str) {
    let length = sign.len() + prefix.len() + digits.len();
    let fill = if zeros && !spec.left { spec.width.saturating_sub(length) } else { 0 };
    let text = format!("{sign}{prefix}{}{digits}", "0".repeat(fill));
    pad(out, spec, text.as_bytes());
}

/// Appends an integer, with zeros up to the precision.
fn integer(out: &mut Vec<u8>, spec: &FormatSpec, sign: &str, prefix: &str, digits: String) {
    let digits = match spec.precision {
        Some(0) if digits == "0" => String::new(),
        Some(least) => format!("{}{digits}", "0".repeat(least.saturating_sub(digits.len()))),
        None => digits,
    };
    assemble(out, spec, spec.zero && spec.precision.is_none(), sign, prefix, &digits);
}

/// Appends a floating-point number.
fn float(out: &mut Vec<u8>, spec: &FormatSpec, conversion: u8, value: f64) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Arguments that are all floating-point numbers.
    struct Numbers<'a>(std::slice::Iter<'a, f64>);

    impl ArgumentSource for Numbers<'_> {
        fn next_integer(&mut self, _: u32) -> u64 {
            self.0.next().map_or(0, |number| number.to_bits())
        }

        fn next_string(&mut self) -> Vec<u8> {
            Vec::new()
        }
    }

    fn print(conversion: &str, number: f64) -> String {
        let (text, used) = format(conversion.as_bytes(), &mut Numbers([number].iter()));
        assert_eq!(used, 1, "{conversion}");
        String::from_utf8(text).expect("ASCII")
    }

    /// What `printf` of glibc 2.36 prints: every digit, then with 0, 1, 2, 12 and 13 digits.
    #[test]
    fn hexadecimal_digits_are_rounded_as_the_c_library_rounds() {
        let table = [
            (0.0, ["0x0p+0", "0x0p+0", "0x0.0p+0", "0x0.00p+0", "0x0.000000000000p+0", "0x0.0000000000000p+0"]),
            (1.0, ["0x1p+0", "0x1p+0", "0x1.0p+0", "0x1.00p+0", "0x1.000000000000p+0", "0x1.0000000000000p+0"]),
            (0.1, ["0x1.999999999999ap-4", "0x2p-4", "0x1.ap-4", "0x1.9ap-4", "0x1.99999999999ap-4", "0x1.999999999999ap-4"]),
            (1.5, ["0x1.8p+0", "0x2p+0", "0x1.8p+0", "0x1.80p+0", "0x1.800000000000p+0", "0x1.8000000000000p+0"]),
            (2.5, ["0x1.4p+1", "0x1p+1", "0x1.4p+1", "0x1.40p+1", "0x1.400000000000p+1", "0x1.4000000000000p+1"]),
            (1.96875, ["0x1.f8p+0", "0x2p+0", "0x2.0p+0", "0x1.f8p+0", "0x1.f80000000000p+0", "0x1.f800000000000p+0"]),
            (1.03125, ["0x1.08p+0", "0x1p+0", "0x1.0p+0", "0x1.08p+0", "0x1.080000000000p+0", "0x1.0800000000000p+0"]),
            (1.09375, ["0x1.18p+0", "0x1p+0", "0x1.2p+0", "0x1.18p+0", "0x1.180000000000p+0", "0x1.1800000000000p+0"]),
            (1.999_999_999, ["0x1.fffffffbb47dp+0", "0x2p+0", "0x2.0p+0", "0x2.00p+0", "0x1.fffffffbb47dp+0", "0x1.fffffffbb47d0p+0"]),
            (5e-324, ["0x0.0000000000001p-1022", "0x0p-1022", "0x0.0p-1022", "0x0.00p-1022", "0x0.000000000000p-1022", "0x0.0000000000001p-1022"]),
            (f64::MIN_POSITIVE, ["0x1p-1022", "0x1p-1022", "0x1.0p-1022", "0x1.00p-1022", "0x1.000000000000p-1022", "0x1.0000000000000p-1022"]),
            (1e-310, ["0x0.012688b70e62bp-1022", "0x0p-1022", "0x0.0p-1022", "0x0.01p-1022", "0x0.012688b70e63p-1022", "0x0.012688b70e62bp-1022"]),
            (f64::MAX, ["0x1.fffffffffffffp+1023", "0x2p+1023", "0x2.0p+1023", "0x2.00p+1023", "0x2.000000000000p+1023", "0x1.fffffffffffffp+1023"]),
            (255.5, ["0x1.ffp+7", "0x2p+7", "0x2.0p+7", "0x1.ffp+7", "0x1.ff0000000000p+7", "0x1.ff00000000000p+7"]),
            (std::f64::consts::PI, ["0x1.921fb54442d18p+1", "0x2p+1", "0x1.9p+1", "0x1.92p+1", "0x1.921fb54442d2p+1", "0x1.921fb54442d18p+1"]),
        ];
        for (number, expected) in table {
            let got = ["%a", "%.0a", "%.1a", "%.2a", "%.12a", "%.13a"].map(|conversion| print(conversion, number));
            assert_eq!(got, expected, "{number:e}");
        }
        assert_eq!(print("%.15a", 0.1), "0x1.999999999999a00p-4");
        assert_eq!(print("%+.3a", -0.1), "-0x1.99ap-4");
        assert_eq!(print("%20.2A", 255.5), "           0X1.FFP+7");
        assert_eq!(print("%012a", 1.0), "0x0000001p+0");
        assert_eq!(print("%-12a|", 1.0), "0x1p+0      |");
    }

    /// What `printf` of glibc 2.36 prints.
    #[test]
    fn decimal_digits_are_those_of_the_c_library() {
        let conversions =
            ["%f", "%.0f", "%#.0f", "%.3f", "%+.1f", "% .1f", "%012.2f", "%-10.1f|", "%e", "%.0e", "%#.0e", "%.2e", "%E", "%g", "%.3g", "%#.3g", "%G"];
        // In the order of the conversions.
        let table = [
            (0.0, "0.000000;0;0.;0.000;+0.0; 0.0;000000000.00;0.0       |;0.000000e+00;0e+00;0.e+00;0.00e+00;0.000000E+00;0;0;0.00;0"),
            (1.0, "1.000000;1;1.;1.000;+1.0; 1.0;000000001.00;1.0       |;1.000000e+00;1e+00;1.e+00;1.00e+00;1.000000E+00;1;1;1.00;1"),
            (-1.5, "-1.500000;-2;-2.;-1.500;-1.5;-1.5;-00000001.50;-1.5      |;-1.500000e+00;-2e+00;-2.e+00;-1.50e+00;-1.500000E+00;-1.5;-1.5;-1.50;-1.5"),
            (0.5, "0.500000;0;0.;0.500;+0.5; 0.5;000000000.50;0.5       |;5.000000e-01;5e-01;5.e-01;5.00e-01;5.000000E-01;0.5;0.5;0.500;0.5"),
            (
                123_456.789,
                "123456.789000;123457;123457.;123456.789;+123456.8; 123456.8;000123456.79;123456.8  |;1.234568e+05;1e+05;1.e+05;1.23e+05;1.234568E+05;123457;1.23e+05;1.23e+05;123457",
            ),
            (1e-5, "0.000010;0;0.;0.000;+0.0; 0.0;000000000.00;0.0       |;1.000000e-05;1e-05;1.e-05;1.00e-05;1.000000E-05;1e-05;1e-05;1.00e-05;1E-05"),
            (
                1e20,
                "100000000000000000000.000000;100000000000000000000;100000000000000000000.;100000000000000000000.000;+100000000000000000000.0; 100000000000000000000.0;100000000000000000000.00;100000000000000000000.0|;1.000000e+20;1e+20;1.e+20;1.00e+20;1.000000E+20;1e+20;1e+20;1.00e+20;1E+20",
            ),
            (-0.0, "-0.000000;-0;-0.;-0.000;-0.0;-0.0;-00000000.00;-0.0      |;-0.000000e+00;-0e+00;-0.e+00;-0.00e+00;-0.000000E+00;-0;-0;-0.00;-0"),
            (f64::INFINITY, "inf;inf;inf;inf;+inf; inf;         inf;inf       |;inf;inf;inf;inf;INF;inf;inf;inf;INF"),
            (-f64::NAN, "-nan;-nan;-nan;-nan;-nan;-nan;        -nan;-nan      |;-nan;-nan;-nan;-nan;-NAN;-nan;-nan;-nan;-NAN"),
        ];
        for (number, expected) in table {
            assert_eq!(conversions.map(|conversion| print(conversion, number)).join(";"), expected, "{number:e}");
        }
    }

    /// The same of integers, of which the argument holds 32 bits.
    #[test]
    fn integers_are_those_of_the_c_library() {
        let conversions = ["%d", "%u", "%x", "%#x", "%X", "%o", "%#o", "%5d|", "%-5d|", "%05d", "%+d", "% d", "%.3d", "%8.3d|", "%hhd", "%hd"];
        // In the order of the conversions.
        let table: [(i32, &str); 6] = [
            (0, "0;0;0;0;0;0;0;    0|;0    |;00000;+0; 0;000;     000|;0;0"),
            (7, "7;7;7;0x7;7;7;07;    7|;7    |;00007;+7; 7;007;     007|;7;7"),
            (-7, "-7;4294967289;fffffff9;0xfffffff9;FFFFFFF9;37777777771;037777777771;   -7|;-7   |;-0007;-7;-7;-007;    -007|;-7;-7"),
            (65, "65;65;41;0x41;41;101;0101;   65|;65   |;00065;+65; 65;065;     065|;65;65"),
            (70000, "70000;70000;11170;0x11170;11170;210560;0210560;70000|;70000|;70000;+70000; 70000;70000;   70000|;112;4464"),
            (
                -2147483648,
                "-2147483648;2147483648;80000000;0x80000000;80000000;20000000000;020000000000;-2147483648|;-2147483648|;-2147483648;-2147483648;-2147483648;-2147483648;-2147483648|;0;0",
            ),
        ];
        for (number, expected) in table {
            let print = |conversion| print(conversion, f64::from_bits(u64::from(number.cast_unsigned())));
            assert_eq!(conversions.map(print).join(";"), expected, "{number}");
        }
        assert_eq!(print("%lld", f64::from_bits(u64::MAX)), "-1");
        assert_eq!(print("%lx", f64::from_bits(u64::MAX)), "f".repeat(16));
        assert_eq!(print("%3c|", f64::from_bits(65)), "  A|");
        assert_eq!((print("%p", f64::from_bits(0x1230)), print("%p", 0.0)), ("0x1230".to_owned(), "(nil)".to_owned()));
    }
}
