//! Foreign text: names of programs and devices, faults, notes, settings. Its writer may want to
//! control the terminal of its reader.

/// Makes foreign text safe to show and to log: one line of at most `most` characters. Characters
/// that a terminal could take for a command, invisible ones, and those that change the direction of
/// reading are written as in source text (`\u{1b}`). An ellipsis marks a text that was cut.
/// Escaping twice changes nothing.
#[must_use]
pub fn escape_foreign(text: &str, most: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(most));
    let mut length = 0;
    // Where the text is cut if it proves too long: up to here there is room for the ellipsis.
    let mut end = 0;
    for c in text.chars() {
        let piece = c.escape_debug();
        // Quotes and the backslash itself do no harm.
        let plain = matches!(c, '"' | '\'' | '\\') || piece.len() == 1;
        length += if plain { 1 } else { piece.len() };
        if length > most {
            shown.truncate(end);
            shown.extend((most > 0).then_some('…'));
            return shown;
        }
        if plain {
            shown.push(c)
        } else {
            shown.extend(piece)
        }
        if length < most {
            end = shown.len();
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_commands() {
        let cases = [
            ("./bench 'a' \"b\" C:\\x é 日本", "./bench 'a' \"b\" C:\\x é 日本"),
            ("\u{1b}[2Jgone", "\\u{1b}[2Jgone"),
            ("a\nb\r\tc\u{7f}\0", "a\\nb\\r\\tc\\u{7f}\\0"),
            ("\u{9b}31m", "\\u{9b}31m"),
            // The order of reading, and what nobody sees.
            ("gpj\u{202e}exe\u{2066}\u{200b}\u{feff}", "gpj\\u{202e}exe\\u{2066}\\u{200b}\\u{feff}"),
            ("line\u{2028}paragraph\u{2029}", "line\\u{2028}paragraph\\u{2029}"),
        ];
        for (text, shown) in cases {
            assert_eq!(escape_foreign(text, 1000), shown);
            assert_eq!(escape_foreign(shown, 1000), shown, "once is enough");
        }
    }

    #[test]
    fn no_text_is_longer_than_was_allowed() {
        assert_eq!(escape_foreign("abcd", 4), "abcd");
        assert_eq!(escape_foreign("abcde", 4), "abc…");
        assert_eq!(escape_foreign("ab\u{1b}cd", 5), "ab…", "an escape is whole or not there");
        assert_eq!(escape_foreign("ab\u{1b}", 8), "ab\\u{1b}");
        assert_eq!(escape_foreign("ab", 0), "");
        let endless = "\u{1b}é".repeat(100_000);
        for most in 0..50 {
            let shown = escape_foreign(&endless, most);
            assert!(shown.chars().count() <= most && escape_foreign(&shown, most) == shown, "{shown}");
        }
    }
}
