//! An S3 server that keeps objects in a directory, so that it can be killed and started again.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Serves objects of one bucket until the process is killed.
pub(crate) fn serve(listener: &TcpListener, directory: PathBuf) {
    let directory = Arc::new(directory);
    for stream in listener.incoming().flatten() {
        let directory = Arc::clone(&directory);
        std::thread::spawn(move || while_open(stream, &directory));
    }
}

fn while_open(stream: TcpStream, directory: &Path) {
    let mut reader = BufReader::new(stream);
    let mut number = 0;
    loop {
        let (mut line, mut header, mut length) = (String::new(), String::new(), 0);
        if !reader.read_line(&mut line).is_ok_and(|read| read > 0) {
            return;
        }
        while reader.read_line(&mut header).is_ok_and(|read| read > 2) {
            if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            header.clear();
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let mut words = line.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let key = path.split('?').next().unwrap_or_default().trim_start_matches("/bucket").trim_matches('/');
        if method == "PUT" && !key.is_empty() {
            // Whole or not at all, as object storage is.
            let (target, temporary) = (directory.join(key), directory.join(format!(".{:p}-{number}", &body)));
            number += 1;
            let parent = target.parent().expect("a parent");
            std::fs::create_dir_all(parent).expect("a directory");
            std::fs::write(&temporary, &body).expect("a file");
            std::fs::rename(&temporary, &target).expect("a file");
        }
        if write!(reader.get_mut(), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}
