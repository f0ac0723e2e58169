//! A keeper, asked over a real socket, beside a model of what it should hold.

use crate::bytes::Bytes;
use crate::messages;
use cumux_link::Connection;
use cumux_link::connection::MAX_DESCRIPTORS;
use cumux_wire::message::{FromKeeper, ToKeeper};
use std::collections::BTreeMap;
use std::time::Duration;

/// Questions in one run.
const MOST: usize = 48;
/// A keeper that has not answered by then hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// What is kept: note and number of descriptors by session and key.
type Model = BTreeMap<(u32, String), (String, usize)>;

/// # Panics
/// The keeper does not do what it should.
pub fn run(bytes: &mut Bytes<'_>) {
    let (asker, keeper) = Connection::pair().expect("a pair of sockets");
    asker.set_timeout(Some(ANSWER_TIMEOUT)).expect("a socket");
    std::thread::scope(|scope| {
        scope.spawn(move || cumux_keeper::fuzzing::serve_connection(&keeper));
        converse(bytes, asker);
    });
}

fn converse(bytes: &mut Bytes<'_>, asker: Connection) {
    let mut model = Model::new();
    for request in 1..=MOST as u64 {
        if bytes.is_empty() {
            return;
        }
        let question = messages::to_keeper(bytes, request);
        let packet = messages::packet(bytes, &question);
        let descriptors = messages::descriptors(bytes);
        messages::send(&asker, &packet, &descriptors);
        // What is not understood is passed over, and nothing is answered.
        let Ok(understood) = serde_json::from_slice::<ToKeeper>(&packet) else { continue };
        match understood {
            ToKeeper::Quit => return,
            ToKeeper::Keep { request, session, key, note } => {
                let count = descriptors.len().min(MAX_DESCRIPTORS);
                if count > 0 {
                    model.insert((session, key), (note, count));
                }
                assert_eq!(answer(&asker).0, FromKeeper::Kept { request, descriptors: count as u32 });
            }
            ToKeeper::Drop { request, session, key } => {
                model.remove(&(session, key));
                assert_eq!(answer(&asker).0, FromKeeper::End { request });
            }
            ToKeeper::DropSession { request, session } => {
                model.retain(|(of, _), _| *of != session);
                assert_eq!(answer(&asker).0, FromKeeper::End { request });
            }
            ToKeeper::List { request, session } => {
                for ((of, key), (note, count)) in model.iter().filter(|((of, _), _)| session == 0 || *of == session) {
                    let item = FromKeeper::Item { request, session: *of, key: key.clone(), note: note.clone() };
                    assert_eq!(answer(&asker), (item, *count));
                }
                assert_eq!(answer(&asker).0, FromKeeper::End { request });
            }
            ToKeeper::Connect { request } => assert_eq!(answer(&asker).0, FromKeeper::End { request }),
        }
    }
}

/// An answer and the number of its descriptors.
fn answer(asker: &Connection) -> (FromKeeper, usize) {
    let (answer, descriptors) = asker.receive::<FromKeeper>().expect("an answer");
    (answer, descriptors.len())
}
