//! Against a small server that speaks HTTP and WebSocket, written by hand so that it can also misbehave.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha1::{Digest as _, Sha1};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use super::*;

/// What the server sends after the handshake.
#[derive(Clone)]
enum Sends {
    Text(&'static str),
    /// A text in two frames with a ping between them, which has to be answered.
    Pieces(&'static str, &'static str),
    Close(u16),
    Nothing,
}

struct Server {
    host: String,
    requests: std::sync::Arc<parking_lot::Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[expect(clippy::disallowed_methods, reason = "the server ends with the test")]
async fn serve(submit: (u16, &'static str), sends: Vec<Sends>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let requests = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let observed = std::sync::Arc::clone(&requests);
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (observed, sends) = (std::sync::Arc::clone(&observed), sends.clone());
            tokio::spawn(async move { answer(BufReader::new(stream), submit, &sends, &observed).await });
        }
    });
    Server { host, requests, task }
}

async fn answer(
    mut stream: BufReader<TcpStream>,
    submit: (u16, &str),
    sends: &[Sends],
    observed: &parking_lot::Mutex<Vec<String>>,
) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.unwrap() == 0 {
            return;
        }
    }
    let header = |name: &str| {
        head.lines()
            .find_map(|line| line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name)))
            .map(|(_, value)| value.to_owned())
    };
    let length = header("content-length").map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    observed.lock().push(format!("{}{}", head.to_lowercase(), String::from_utf8(body).unwrap()));
    let Some(key) = header("sec-websocket-key") else {
        let (code, text) = submit;
        let length = text.len();
        let answer =
            format!("HTTP/1.1 {code} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}");
        stream.write_all(answer.as_bytes()).await.unwrap();
        return;
    };
    let accept = STANDARD.encode(Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")));
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: {accept}\r\n\r\n"
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
    for one in sends {
        match one {
            Sends::Text(text) => frame(&mut stream, 0x81, text.as_bytes()).await,
            Sends::Pieces(first, second) => {
                frame(&mut stream, 0x01, first.as_bytes()).await;
                frame(&mut stream, 0x89, b"are you there").await;
                frame(&mut stream, 0x80, second.as_bytes()).await;
                let mut pong = [0; 2 + 4 + 13];
                stream.read_exact(&mut pong).await.unwrap();
                assert_eq!(pong[..2], [0x8a, 0x8d]);
                let text: Vec<u8> =
                    pong[6..].iter().zip(pong[2..6].iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
                assert_eq!(text, b"are you there");
            }
            Sends::Close(code) => frame(&mut stream, 0x88, &code.to_be_bytes()).await,
            Sends::Nothing => return,
        }
    }
}

async fn frame(stream: &mut BufReader<TcpStream>, first: u8, payload: &[u8]) {
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..126 => frame.push(u8::try_from(length).unwrap()),
        length => {
            frame.push(126);
            frame.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
    }
    frame.extend(payload);
    stream.write_all(&frame).await.unwrap();
}

fn work(host: &str) -> Work {
    let submission =
        Submission { entrypoint: "python a.py".into(), submission_id: "a".into(), ..Submission::default() };
    Work { address: host.to_owned(), submission, token: None }
}

async fn output(work: &Work) -> (String, Result<(), String>) {
    let mut text = String::new();
    let done = run(work, |more| text += more).await;
    (text, done)
}

const LONG: &str = "a line of a log that is longer than a short frame can be, which is one hundred and twenty-five bytes, so \
                    that its length is written in two bytes\n";

#[tokio::test]
async fn a_job_is_submitted_and_its_logs_are_shown() {
    let sends = vec![Sends::Text("one\n"), Sends::Pieces("t", "wo\n"), Sends::Text(LONG), Sends::Close(1000)];
    let server = serve((200, "{\"job_id\": \"a\"}"), sends).await;
    let mut work = work(&format!("http://{}/", server.host));
    work.token = Some("hush".to_owned());
    let (text, done) = output(&work).await;
    assert_eq!(done, Ok(()));
    assert_eq!(
        text,
        format!("SUCC -- Job 'a' submitted successfully\none\ntwo\n{LONG}SUCC -- Job 'a' succeeded\n")
    );
    let requests = server.requests.lock();
    assert!(requests[0].starts_with("post /api/jobs/ http/1.1"), "{}", requests[0]);
    assert!(requests[0].contains("\"submission_id\":\"a\""));
    assert!(requests[1].starts_with("get /api/jobs/a/logs/tail http/1.1"), "{}", requests[1]);
    assert!(
        requests.iter().all(|request| request.contains("x-ray-authorization: bearer hush")),
        "{requests:?}"
    );
}

#[tokio::test]
async fn a_job_that_was_submitted_before_is_followed() {
    let taken = "Please use a different submission_id";
    let server = serve((500, taken), vec![Sends::Text("log\n"), Sends::Close(1000)]).await;
    let (text, done) = output(&work(&server.host)).await;
    assert_eq!(done, Ok(()));
    assert!(text.contains("was submitted before") && text.contains("log\n"), "{text}");
}

#[tokio::test]
async fn what_goes_wrong_is_told() {
    let server = serve((500, "no space left"), vec![]).await;
    let (_, done) = output(&work(&server.host)).await;
    assert!(done.unwrap_err().contains("no space left"));
    for (sends, expected) in [
        (vec![Sends::Text("half"), Sends::Nothing], "the connection broke"),
        (vec![Sends::Close(1011)], "closed the conversation with code 1011"),
    ] {
        let server = serve((200, "{}"), sends).await;
        let (text, done) = output(&work(&server.host)).await;
        let error = done.unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(!text.contains("succeeded"), "{text}");
    }
    let (_, done) = output(&work("https://ray:8265")).await;
    assert!(done.unwrap_err().contains("is not of the form HOST:PORT"));
}
