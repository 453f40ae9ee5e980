//! Attaches to a program that serves its events: what it sends is written to a temporary trace as it comes, and read from
//! there like any other. The program is never slowed; what it could not send in time it counts, and the trace says.

use super::Wake;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tempfile::TempPath;

/// How long a connection may take to be made.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a program may take to send the head of its trace.
const FIRST: Duration = Duration::from_secs(5);

/// Most bytes that are kept on disk.
const MOST_BYTES: u64 = 8 << 30;

/// Most bytes of a head.
const MOST_HEAD: u32 = 16 << 20;

/// What becomes of a connection.
#[derive(Debug)]
pub enum News {
    /// The trace that grows has a head now.
    Ready(PathBuf),
    /// It has ended, and why; what came can still be looked at.
    Ended(String),
}

/// A connection. Dropped, it ends.
pub struct Connection {
    /// Whom to.
    pub peer: String,
    news: Receiver<News>,
    stop: Arc<AtomicBool>,
    file: TempPath,
}

impl Connection {
    /// Connects on a thread of its own.
    ///
    /// # Errors
    /// Where no temporary file or thread can be had, in words.
    pub fn open(peer: &str, wake: Wake) -> Result<Self, String> {
        let file = tempfile::Builder::new().prefix("kvarto-").suffix(".kvtr").tempfile();
        let (file, path) = file.map_err(|e| format!("no temporary file: {e}"))?.into_parts();
        let (sender, news) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let spool = Spool { peer: peer.into(), path: path.to_path_buf(), sender, wake, stop: stop.clone() };
        std::thread::Builder::new()
            .name("connect".into())
            .spawn(move || {
                let why = spool.run(file).unwrap_or_else(|why| why);
                spool.say(News::Ended(format!("{}: {why}", spool.peer)));
            })
            .map_err(|e| format!("no thread for {peer}: {e}"))?;
        Ok(Connection { peer: peer.into(), news, stop, file: path })
    }

    /// The temporary trace; it goes with the connection.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// What happened since.
    pub fn news(&self) -> Option<News> {
        self.news.try_recv().ok()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

struct Spool {
    peer: String,
    path: PathBuf,
    sender: Sender<News>,
    wake: Wake,
    stop: Arc<AtomicBool>,
}

impl Spool {
    fn say(&self, news: News) {
        // Nobody listens once the connection was dropped.
        let _ = self.sender.send(news);
        (self.wake)();
    }

    /// Copies until the peer ends; says how it ended.
    fn run(&self, mut file: std::fs::File) -> Result<String, String> {
        let refused = |e: std::io::Error| {
            format!("{e}; start a program with --events PORT, such as kvarto generate --events 7000")
        };
        let mut addresses = self.peer.to_socket_addrs().map_err(|e| format!("is no ADDRESS:PORT: {e}"))?;
        let address = addresses.next().ok_or("is no ADDRESS:PORT")?;
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(refused)?;
        stream.set_read_timeout(Some(FIRST)).map_err(|e| e.to_string())?;
        let head = head(&mut stream)?;
        file.write_all(&head).map_err(|e| format!("the temporary trace cannot be written: {e}"))?;
        self.say(News::Ready(self.path.clone()));
        // A program that does nothing sends nothing: that is no fault.
        stream.set_read_timeout(Some(Duration::from_millis(200))).map_err(|e| e.to_string())?;
        let (mut buffer, mut total) = (vec![0; 256 << 10], head.len() as u64);
        while !self.stop.load(Ordering::SeqCst) {
            match stream.read(&mut buffer) {
                Ok(0) => return Ok("the program has ended".into()),
                Ok(count) => {
                    let written = file.write_all(&buffer[..count]);
                    written.map_err(|e| format!("the temporary trace cannot be written: {e}"))?;
                    total += count as u64;
                }
                Err(e) if is_pause(e.kind()) => {}
                Err(e) => return Err(format!("the connection broke: {e}")),
            }
            if total > MOST_BYTES {
                return Err(format!("more than {} GiB came: connect again to go on", MOST_BYTES >> 30));
            }
        }
        Ok("left".into())
    }
}

fn is_pause(kind: std::io::ErrorKind) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(kind, Interrupted | TimedOut | WouldBlock)
}

/// The head of a trace, whole: what readers of files want to find there.
fn head(stream: &mut TcpStream) -> Result<Vec<u8>, String> {
    let mut head = vec![0; 10];
    let cut = |e: std::io::Error| match is_pause(e.kind()) {
        true => format!("nothing that is a trace came within {} s", FIRST.as_secs()),
        false => format!("no trace comes from there: {e}"),
    };
    stream.read_exact(&mut head).map_err(cut)?;
    if head[..4] != kvarto::trace::MAGIC {
        let begins = String::from_utf8_lossy(&head[..4]).into_owned();
        return Err(format!("what is served there is no trace: it begins with {begins:?}, not \"KVTR\""));
    }
    let length = u32::from_le_bytes([head[6], head[7], head[8], head[9]]);
    if length > MOST_HEAD {
        return Err(format!("its head says {length} bytes, {MOST_HEAD} at most are read"));
    }
    head.resize(10 + length as usize + 8, 0);
    stream.read_exact(&mut head[10..]).map_err(cut)?;
    Ok(head)
}
