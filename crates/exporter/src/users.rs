//! Names of users, out of `/etc/passwd`. A user that is not in it (a directory service, another
//! container) has a number and no name.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;

/// Longest file that is read.
const LONGEST: u64 = 4 << 20;

/// The names that a file of users gives to their numbers.
#[derive(Debug, Clone, Default)]
pub struct Users(HashMap<u32, User>);

#[derive(Debug, Clone)]
struct User {
    name: String,
    group: Option<u32>,
}

impl Users {
    /// Reads `/etc/passwd`.
    #[must_use]
    pub fn read() -> Self {
        Self::read_from(Path::new("/etc/passwd"))
    }

    fn read_from(path: &Path) -> Self {
        let mut text = Vec::new();
        let read = std::fs::File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut text));
        if read.is_err() {
            return Self::default();
        }
        let mut names = HashMap::new();
        for line in String::from_utf8_lossy(&text).lines() {
            let mut fields = line.split(':');
            let (Some(name), Some(number)) = (fields.next(), fields.nth(1).and_then(|number| number.parse().ok())) else { continue };
            let user = User { name: name.to_owned(), group: fields.next().and_then(|group| group.parse().ok()) };
            // As the system does it, the first line of a number counts.
            names.entry(number).or_insert(user);
        }
        Self(names)
    }

    /// The user's name; its number where it has none.
    #[must_use]
    pub fn name(&self, uid: u32) -> String {
        self.0.get(&uid).map_or_else(|| uid.to_string(), |user| user.name.clone())
    }

    /// The number of the user's own group.
    #[must_use]
    pub fn group(&self, uid: u32) -> Option<u32> {
        self.0.get(&uid)?.group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "root:x:0:0::/:/bin/sh\nnonsense\nada:x:1000:1000::/:\nlovelace:x:1000:1:::\nbad:x:minus:0\n").unwrap();
        let users = Users::read_from(file.path());
        assert_eq!([users.name(0), users.name(1000), users.name(7)], ["root", "ada", "7"]);
        assert_eq!([users.group(0), users.group(1000), users.group(7)], [Some(0), Some(1000), None]);
        assert_eq!(Users::read_from(Path::new("/nowhere")).name(0), "0");
    }
}
