//! A trace for programs that connect: read-only, each with a bounded queue, so that none slows the engine or another.

use crate::error::{Error, ErrorKind, Result};
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Clients at once; further ones are turned away.
const MOST_CLIENTS: usize = 16;

/// Chunks that wait for a client.
const QUEUE_CHUNKS: usize = 64;

/// A client that takes nothing for this long is let go of.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes clients in and sends them chunks.
pub(super) struct Server {
    listener: TcpListener,
    address: SocketAddr,
    head: Vec<u8>,
    clients: Vec<Client>,
    served: u64,
    /// A client that came and was not sent anything yet.
    came: std::cell::RefCell<Option<TcpStream>>,
}

struct Client {
    sender: SyncSender<Arc<[u8]>>,
    waiting: Arc<AtomicUsize>,
    peer: SocketAddr,
    /// The first event that it missed, once it missed any.
    missed_from: Option<u64>,
    /// Events that it was sent.
    sent: u64,
}

impl Server {
    pub fn new(listener: TcpListener, head: Vec<u8>) -> Result<Self> {
        let fault = |e: std::io::Error| {
            Error::new(ErrorKind::File, format!("events cannot be served: {e}"), "try another port")
        };
        listener.set_nonblocking(true).map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        Ok(Server { listener, address, head, clients: Vec::new(), served: 0, came: Default::default() })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether [`Server::accept`] would take somebody in.
    pub fn somebody_waits(&self) -> bool {
        let mut came = self.came.borrow_mut();
        if came.is_none() {
            *came = self.listener.accept().ok().map(|(stream, _)| stream);
        }
        came.is_some()
    }

    /// Takes in whoever came; their first chunk is that of `snapshot`, all events before which were sent to the others.
    pub fn accept(&mut self, mut snapshot: impl FnMut() -> Option<Vec<u8>>) {
        while self.somebody_waits() {
            let Some(stream) = self.came.take() else { return };
            self.clients.retain(|client| !client.gone());
            if self.clients.len() >= MOST_CLIENTS {
                log::warn!("events: {MOST_CLIENTS} clients are served already, one more is turned away");
                continue;
            }
            let mut first = self.head.clone();
            first.extend(snapshot().unwrap_or_default());
            match Client::new(stream, first) {
                Ok(client) => {
                    log::info!("events: {} joins", client.peer);
                    self.clients.push(client);
                    self.served += 1;
                }
                Err(e) => log::info!("events: a client could not join: {e}"),
            }
        }
    }

    /// Sends a chunk, with which there were `events` events. Those whose queue is full miss it.
    pub fn send(&mut self, chunk: Arc<[u8]>, events: u64) {
        self.clients.retain_mut(|client| client.send(&chunk, events));
    }

    /// Tells those who missed chunks, and have taken all others, how many events they missed and what the state is.
    pub fn catch_up(&mut self, mut resync: impl FnMut(u64) -> Option<Vec<u8>>, events: u64) {
        for client in &mut self.clients {
            let Some(from) = client.missed_from.filter(|_| client.waiting.load(Ordering::SeqCst) == 0) else {
                continue;
            };
            let dropped = events.saturating_sub(from);
            log::warn!("events: {} was slow and missed {dropped} events", client.peer);
            let Some(chunk) = resync(dropped) else { continue };
            client.missed_from = None;
            client.send(&chunk.into(), events);
        }
    }

    /// Ends: what waits for clients is sent for up to two seconds. How many there were.
    pub fn close(self) -> u64 {
        let end = Instant::now() + Duration::from_secs(2);
        for client in &self.clients {
            while client.waiting.load(Ordering::SeqCst) > 0 && !client.gone() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        self.served
    }
}

impl Client {
    fn new(stream: TcpStream, first: Vec<u8>) -> std::io::Result<Self> {
        let peer = stream.peer_addr()?;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        // Nothing that a client says is read.
        stream.shutdown(Shutdown::Read)?;
        let (sender, receiver) = sync_channel::<Arc<[u8]>>(QUEUE_CHUNKS);
        let waiting = Arc::new(AtomicUsize::new(0));
        let counted = waiting.clone();
        std::thread::Builder::new().name("trace client".into()).spawn(move || serve(stream, &receiver, &counted))?;
        let mut client = Client { sender, waiting, peer, missed_from: None, sent: 0 };
        client.send(&first.into(), 0);
        Ok(client)
    }

    /// Whether its thread has ended.
    fn gone(&self) -> bool {
        Arc::strong_count(&self.waiting) == 1
    }

    /// False once it is gone.
    fn send(&mut self, chunk: &Arc<[u8]>, events: u64) -> bool {
        if self.missed_from.is_some() {
            return !self.gone();
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        match self.sender.try_send(chunk.clone()) {
            Ok(()) => {
                self.sent = events;
                true
            }
            Err(TrySendError::Full(_)) => {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                self.missed_from = Some(self.sent);
                true
            }
            Err(TrySendError::Disconnected(_)) => {
                log::info!("events: {} has left", self.peer);
                false
            }
        }
    }
}

fn serve(mut stream: TcpStream, chunks: &Receiver<Arc<[u8]>>, waiting: &AtomicUsize) {
    while let Ok(chunk) = chunks.recv() {
        let written = stream.write_all(&chunk);
        waiting.fetch_sub(1, Ordering::SeqCst);
        if written.is_err() {
            return;
        }
    }
}
