//! `quintet submitter` against a server that answers as Ray does.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up should stop")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Command, Output},
    thread,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha1::{Digest as _, Sha1};

/// Takes one job and shows one line of its logs. The thread's result is the body of the submission.
fn ray() -> (String, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let thread = thread::spawn(move || {
        let (_, body, mut stream) = request(&listener);
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
        stream.write_all(answer.as_bytes()).unwrap();
        let (head, _, mut stream) = request(&listener);
        let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
        let accept = STANDARD.encode(Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")));
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nsec-websocket-accept: {accept}\r\n\r\n"
        );
        stream.write_all(answer.as_bytes()).unwrap();
        stream.write_all(b"\x81\x06hello\n\x88\x02\x03\xe8").unwrap();
        let _ = stream.read(&mut [0; 64]);
        body
    });
    (host, thread)
}

fn request(listener: &TcpListener) -> (String, String, TcpStream) {
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).unwrap();
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |text| text.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap(), stream)
}

fn submit(host: Option<&str>, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quintet"));
    command
        .arg("submitter")
        .args(arguments)
        .env_remove("RAY_DASHBOARD_ADDRESS")
        .env("RAY_JOB_SUBMISSION_ID", "a");
    if let Some(host) = host {
        command.env("RAY_DASHBOARD_ADDRESS", host);
    }
    command.output().unwrap()
}

#[test]
fn it_submits_and_shows_the_logs() {
    let (host, thread) = ray();
    let flags = ["--runtime-env-json", r#"{"pip": ["torch"]}"#, "--entrypoint-num-cpus", "0.5"];
    let output = submit(Some(&host), &[&flags[..], &["--", "python", "a.py", "--epochs", "3"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.ends_with("hello\nSUCC -- Job 'a' succeeded\n"), "{text}");
    let body = thread.join().unwrap();
    let expected = r#"{"entrypoint":"python a.py --epochs 3","submission_id":"a","runtime_env":{"pip":["torch"]},"entrypoint_num_cpus":0.5}"#;
    assert_eq!(body, expected);
}

#[test]
fn what_goes_wrong_is_told_in_one_line() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for (host, arguments, code, expected) in [
        (Some(nobody.as_str()), &["--", "a"][..], 1, "error: cannot submit job 'a': no response from"),
        (
            Some("x"),
            &["--metadata-json", "{", "--", "a"],
            1,
            "--metadata-json is not a JSON object that Ray takes",
        ),
        (None, &["--", "a"], 2, "--address"),
        (Some("x"), &[], 2, "ENTRYPOINT"),
    ] {
        let output = submit(host, arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert!(message.contains(expected), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}
