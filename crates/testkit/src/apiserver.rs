//! An API server that behaves as Kubernetes' does for the few objects that a DRA driver needs:
//! claims to read, ResourceSlices with versions, refusals with a Status, and times without an
//! answer.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

#[derive(Debug, Default)]
struct State {
    /// Objects by path.
    objects: BTreeMap<String, Value>,
    version: u64,
    writes: u64,
    is_down: bool,
    has_ended: bool,
    /// The next updates are refused, because somebody else was first.
    conflicts: u32,
}

/// The API server.
#[derive(Debug)]
pub struct ApiServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl ApiServer {
    /// Starts one that wants this token.
    ///
    /// # Panics
    /// It cannot listen.
    #[must_use]
    pub fn start(token: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let (address, state) = (listener.local_addr().expect("its address"), Arc::<Mutex<State>>::default());
        let (shared, token) = (Arc::clone(&state), token.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.lock().expect("no panic in here").has_ended {
                    return;
                }
                let (shared, token) = (Arc::clone(&shared), token.clone());
                std::thread::spawn(move || converse(&stream, &shared, &token));
            }
        });
        Self { address, state }
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().expect("no panic in here"))
    }

    /// A claim that the scheduler has allocated: devices of the driver with what they consume, and
    /// the configuration.
    pub fn put_claim(&self, name: &str, uid: &str, devices: &[(&str, Value)], config: Value) {
        let result = |(device, consumed): &(&str, Value)| json!({"request": "gpu", "driver": "gpu.cumux.dev", "pool": "node", "device": device, "shareID": format!("share-{uid}"), "consumedCapacity": consumed});
        let results: Vec<Value> = devices.iter().map(result).collect();
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": "default", "name": name, "uid": uid},
            "status": {"allocation": {"devices": {"results": results, "config": config}}},
        });
        let path = format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}");
        self.update(|state| state.objects.insert(path, claim));
    }

    /// Nobody answers, or again somebody does.
    pub fn set_down(&self, is_down: bool) {
        self.update(|state| state.is_down = is_down);
    }

    /// The next updates are refused with 409.
    pub fn conflict(&self, updates: u32) {
        self.update(|state| state.conflicts = updates);
    }

    /// A slice as it is published.
    #[must_use]
    pub fn slice(&self, name: &str) -> Option<Value> {
        self.update(|state| state.objects.get(&format!("{SLICES}/{name}")).cloned())
    }

    /// How often anything was written.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.update(|state| state.writes)
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.update(|state| state.has_ended = true);
        let _ = TcpStream::connect(self.address);
    }
}

fn converse(stream: &TcpStream, state: &Mutex<State>, token: &str) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        let (mut length, mut authorized) = (0, false);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
                break;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            authorized |= line.trim().eq_ignore_ascii_case(&format!("authorization: Bearer {token}"));
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let mut words = first.split_whitespace();
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut state = state.lock().expect("no panic in here");
        if state.is_down {
            return;
        }
        let (status, answer) = if authorized { answer(&mut state, method, path, &body) } else { refuse(401, "Unauthorized") };
        drop(state);
        let text = answer.to_string();
        // In one piece: the second one would wait for the acknowledgement of the first.
        let whole = format!("HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        let mut stream = stream;
        if stream.write_all(whole.as_bytes()).is_err() {
            return;
        }
    }
}

fn refuse(status: u16, message: &str) -> (u16, Value) {
    (status, json!({"kind": "Status", "status": "Failure", "message": message, "code": status}))
}

fn answer(state: &mut State, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
    let mut object: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match method {
        "GET" if path.starts_with("/api/v1/nodes/") => (200, json!({"metadata": {"uid": "uid-of-the-node"}})),
        "GET" => state.objects.get(path).map_or_else(|| refuse(404, &format!("{path} not found")), |object| (200, object.clone())),
        "POST" if path == SLICES => {
            let path = format!("{SLICES}/{name}");
            if state.objects.contains_key(&path) {
                return refuse(409, "already exists");
            }
            (201, store(state, path, &mut object))
        }
        "PUT" => {
            let Some(existing) = state.objects.get(path) else { return refuse(404, "not found") };
            let is_stale = existing["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"];
            if is_stale || state.conflicts > 0 {
                state.conflicts = state.conflicts.saturating_sub(1);
                return refuse(409, "the object has been modified");
            }
            (200, store(state, path.to_owned(), &mut object))
        }
        _ => refuse(405, "method not allowed"),
    }
}

fn store(state: &mut State, path: String, object: &mut Value) -> Value {
    state.version += 1;
    state.writes += 1;
    object["metadata"]["resourceVersion"] = state.version.to_string().into();
    state.objects.insert(path, object.clone());
    object.clone()
}
