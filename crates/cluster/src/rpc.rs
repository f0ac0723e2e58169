//! gRPC over unix sockets: serving calls that block, and making calls.
//!
//! A service is an implementation of [`Calls`]: it is handed the method's name and answers with
//! [`unary`] or [`stream`]. The package in front of a service's name is not compared: kubelets of
//! different versions put different packages before the same service.
//!
//! Invariant: a handler runs on a thread of its own, never on a thread that serves sockets. A call
//! that waits for the daemon holds up no other call.

use prost::Message;
use std::convert::Infallible;
use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// A call as it came.
pub type Call = http::Request<Body>;
/// The answer to a call, some time later.
pub type Answer = Pin<Box<dyn Future<Output = http::Response<Body>> + Send>>;

/// Messages: plain data.
pub trait Plain: Message + Default + 'static {}
impl<T: Message + Default + 'static> Plain for T {}

/// A service.
pub trait Calls: Send + Sync + 'static {
    /// Answers a call of `method`: `DevicePlugin/Allocate`.
    fn call(self: Arc<Self>, method: &str, call: Call) -> Answer;
}

/// Answers a call with one message, which `handler` makes on a thread of its own.
pub fn unary<Q: Plain, A: Plain>(call: Call, handler: impl FnOnce(Q) -> Result<A, Status> + Send + 'static) -> Answer {
    struct Once<H>(Option<H>);
    impl<Q: Plain, A: Plain, H: FnOnce(Q) -> Result<A, Status> + Send + 'static> UnaryService<Q> for Once<H> {
        type Response = A;
        type Future = Pin<Box<dyn Future<Output = Result<Response<A>, Status>> + Send>>;

        fn call(&mut self, request: Request<Q>) -> Self::Future {
            let handler = self.0.take();
            Box::pin(async move {
                let Some(handler) = handler else { return Err(Status::internal("the call was answered already")) };
                let done = tokio::task::spawn_blocking(move || handler(request.into_inner())).await;
                done.unwrap_or_else(|error| Err(Status::internal(format!("cumux failed while it answered: {error}")))).map(Response::new)
            })
        }
    }
    Box::pin(async move { Grpc::new(ProstCodec::<A, Q>::default()).unary(Once(Some(handler)), call).await })
}

/// What a stream of answers sends.
pub type Sent<A> = Result<A, Status>;

/// A receiver as a stream.
#[derive(Debug)]
pub struct Answers<A>(mpsc::Receiver<Sent<A>>);

impl<A> Stream for Answers<A> {
    type Item = Sent<A>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

/// Answers a call with the messages that come out of `answers`, until its sender is dropped.
pub fn stream<Q: Plain, A: Plain>(call: Call, answers: mpsc::Receiver<Sent<A>>) -> Answer {
    struct Once<A>(Option<mpsc::Receiver<Sent<A>>>);
    impl<Q: Plain, A: Plain> ServerStreamingService<Q> for Once<A> {
        type Response = A;
        type ResponseStream = Answers<A>;
        type Future = std::future::Ready<Result<Response<Answers<A>>, Status>>;

        fn call(&mut self, _: Request<Q>) -> Self::Future {
            std::future::ready(self.0.take().map(|answers| Response::new(Answers(answers))).ok_or_else(|| Status::internal("the call was answered already")))
        }
    }
    Box::pin(async move { Grpc::new(ProstCodec::<A, Q>::default()).server_streaming(Once(Some(answers)), call).await })
}

/// Answers that there is no such method.
#[must_use]
pub fn unknown(method: &str) -> Answer {
    let status = Status::unimplemented(format!("cumux has no method {method}"));
    Box::pin(async move { status.into_http() })
}

struct Served<C>(Arc<C>);

impl<C> Clone for Served<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Calls> tower_service::Service<Call> for Served<C> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let method = method_of(call.uri().path()).to_owned();
        let answer = Arc::clone(&self.0).call(&method, call);
        Box::pin(async move { Ok(answer.await) })
    }
}

/// `Service/Method` out of `/package.of.Service/Method`.
fn method_of(path: &str) -> &str {
    let path = path.trim_start_matches('/');
    let service = path.split('/').next().unwrap_or_default();
    service.rfind('.').map_or(path, |dot| &path[dot + 1..])
}

struct Incoming(UnixListener);

impl Stream for Incoming {
    type Item = io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(context).map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}

/// Listens at a path. A socket that lies there is replaced: its listener has gone, or is about to.
///
/// # Errors
/// The path cannot be bound, or something else than a socket lies there.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "another file than a socket lies there")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    // Only root's kubelet comes here.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves until `end` completes; then calls under way are completed, streams are cut.
///
/// # Errors
/// The transport failed.
pub async fn serve<C: Calls>(listener: UnixListener, calls: Arc<C>, end: impl Future<Output = ()>) -> Result<(), tonic::transport::Error> {
    Server::builder().serve_with_incoming_shutdown(Served(calls), Incoming(listener), end).await
}

/// A connection to a service.
#[derive(Debug, Clone)]
pub struct RpcClient(Channel);

impl RpcClient {
    /// Connects to a socket.
    ///
    /// # Errors
    /// Nobody listens there.
    pub async fn connect(socket: &Path) -> Result<Self, Status> {
        let cannot = |error: &dyn std::fmt::Display| Status::unavailable(format!("nobody answers at {}: {error}", socket.display()));
        let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).map_err(|error| cannot(&error))?;
        endpoint.connect().await.map(Self).map_err(|error| cannot(&error))
    }

    /// Calls a method, `/v1beta1.Registration/Register`, and waits for its one answer.
    ///
    /// # Errors
    /// The status that came back, or that the connection is gone.
    pub async fn call<Q: Plain, A: Plain>(&self, method: &'static str, message: Q) -> Result<A, Status> {
        let mut grpc = tonic::client::Grpc::new(self.0.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = http::uri::PathAndQuery::from_static(method);
        grpc.unary(Request::new(message), path, ProstCodec::<Q, A>::default()).await.map(Response::into_inner)
    }

    /// Calls a method that answers with a stream.
    ///
    /// # Errors
    /// As [`RpcClient::call`].
    pub async fn watch<Q: Plain, A: Plain>(&self, method: &'static str, message: Q) -> Result<tonic::Streaming<A>, Status> {
        let mut grpc = tonic::client::Grpc::new(self.0.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = http::uri::PathAndQuery::from_static(method);
        grpc.server_streaming(Request::new(message), path, ProstCodec::<Q, A>::default()).await.map(Response::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_known_whatever_their_package() {
        assert_eq!(method_of("/v1beta1.DevicePlugin/Allocate"), "DevicePlugin/Allocate");
        assert_eq!(method_of("/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"), "DRAPlugin/NodePrepareResources");
        assert_eq!(method_of("/Plain/Method"), "Plain/Method");
        assert_eq!(method_of(""), "");
    }
}
