//! DNS messages (RFC 1035, EDNS RFC 6891): queries are read, responses are written.
//!
//! Only what a server of one zone needs. Everything else in a message, record types it does not know included, is
//! passed on to other servers as it came, which general message types tend to refuse.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The largest message over UDP without EDNS.
const PLAIN_UDP: usize = 512;
/// The largest message over UDP with EDNS: what fits into a packet on any path.
const EDNS_UDP: u16 = 1232;
const HEADER: usize = 12;
/// A name has at most this many bytes, and so this many labels and pointers.
const NAME: usize = 255;
const CLASS_IN: u16 = 1;

/// Types of records.
pub(super) mod types {
    pub(in super::super) const A: u16 = 1;
    pub(in super::super) const NS: u16 = 2;
    pub(in super::super) const CNAME: u16 = 5;
    pub(in super::super) const SOA: u16 = 6;
    pub(in super::super) const PTR: u16 = 12;
    pub(in super::super) const TXT: u16 = 16;
    pub(in super::super) const AAAA: u16 = 28;
    pub(in super::super) const SRV: u16 = 33;
    pub(super) const OPT: u16 = 41;
    pub(in super::super) const ANY: u16 = 255;
}

/// How a query went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    NoError,
    FormatError,
    ServerFailure,
    NoSuchName,
    NotImplemented,
    BadVersion,
}

impl Code {
    /// The four bits in the header, and the rest in the EDNS record.
    fn bits(self) -> (u16, u8) {
        match self {
            Self::NoError => (0, 0),
            Self::FormatError => (1, 0),
            Self::ServerFailure => (2, 0),
            Self::NoSuchName => (3, 0),
            Self::NotImplemented => (4, 0),
            Self::BadVersion => (0, 1),
        }
    }
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub id: u16,
    /// The flags that go back to the client: the operation, and whether it wants recursion.
    flags: u16,
    /// The question as it came, with the case of its letters.
    question: Vec<u8>,
    /// The name in lower case, without the dot at its end.
    pub name: String,
    pub kind: u16,
    pub class: u16,
    edns: Option<Edns>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edns {
    size: u16,
    version: u8,
}

/// Why a message is not answered as a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rejected {
    /// It is not one: there is nothing to respond to.
    Ignored,
    /// It is responded to with an error.
    With(Vec<u8>),
}

impl Query {
    pub(super) fn parse(message: &[u8]) -> Result<Self, Rejected> {
        let mut reader = Reader { message, position: 0 };
        let header = reader.header().ok_or(Rejected::Ignored)?;
        let Header { id, flags, questions, answers, authorities, additionals } = header;
        if flags & 0x8000 != 0 {
            return Err(Rejected::Ignored);
        }
        let rejected = |code| Rejected::With(bare_response(id, flags, code));
        if flags & 0x7800 != 0 {
            return Err(rejected(Code::NotImplemented));
        }
        if questions != 1 {
            return Err(rejected(Code::FormatError));
        }
        let malformed = || rejected(Code::FormatError);
        let start = reader.position;
        let name = reader.name().ok_or_else(malformed)?;
        let kind = reader.u16().ok_or_else(malformed)?;
        let class = reader.u16().ok_or_else(malformed)?;
        let question = message.get(start..reader.position).ok_or_else(malformed)?.to_vec();
        let mut edns = None;
        for _ in 0..u32::from(answers) + u32::from(authorities) + u32::from(additionals) {
            let record = reader.record().ok_or_else(malformed)?;
            if record.kind == types::OPT {
                let [_, version, ..] = record.ttl.to_be_bytes();
                edns = Some(Edns { size: record.class, version });
            }
        }
        let query = Self { id, flags: flags & 0x0110, question, name, kind, class, edns };
        if edns.is_some_and(|edns| edns.version != 0) {
            return Err(Rejected::With(Response::new(Code::BadVersion).encode(&query, usize::MAX)));
        }
        Ok(query)
    }

    /// Whether the records of the internet are asked for.
    pub(super) fn is_internet(&self) -> bool {
        self.class == CLASS_IN || self.class == types::ANY
    }

    /// The size of a response that its sender takes over UDP.
    pub(super) fn udp_size(&self) -> usize {
        self.edns.map_or(PLAIN_UDP, |edns| usize::from(edns.size.min(EDNS_UDP)).max(PLAIN_UDP))
    }

    /// The same question for another name, such as the target of an alias.
    pub(super) fn about(name: &str, kind: u16, id: u16) -> Vec<u8> {
        let mut writer = Writer::default();
        for word in [id, 0x0100, 1, 0, 0, 1] {
            writer.u16(word);
        }
        writer.name(name, false);
        writer.u16(kind);
        writer.u16(CLASS_IN);
        writer.opt(0);
        writer.bytes
    }
}

/// A record in a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub name: String,
    pub ttl: u32,
    pub data: Data,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Data {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Cname(String),
    Ns(String),
    Ptr(String),
    Txt(String),
    Srv { port: u16, target: String },
    Soa { server: String, mailbox: String, serial: u32, minimum: u32 },
}

/// A response to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub code: Code,
    /// It is from the zone itself.
    pub is_authoritative: bool,
    pub answers: Vec<Record>,
    pub authorities: Vec<Record>,
    pub additionals: Vec<Record>,
}

impl Response {
    pub(super) fn new(code: Code) -> Self {
        Self {
            code,
            is_authoritative: false,
            answers: Vec::new(),
            authorities: Vec::new(),
            additionals: Vec::new(),
        }
    }

    /// The message. One that is longer than `limit` says so and has as many answers as fit; the client asks again
    /// over TCP.
    pub(super) fn encode(&self, query: &Query, limit: usize) -> Vec<u8> {
        let whole = self.write(query, self.answers.len(), &self.additionals);
        if whole.len() <= limit {
            return whole;
        }
        // Additional records are a courtesy.
        let bare = self.write(query, self.answers.len(), &[]);
        if bare.len() <= limit {
            return bare;
        }
        let fits = |count: &usize| self.write(query, *count, &[]).len() <= limit;
        // The length grows with the count: the first count that does not fit is found by halving.
        let (mut low, mut high) = (0, self.answers.len());
        while low < high {
            let middle = (low + high).div_ceil(2);
            if fits(&middle) { low = middle } else { high = middle - 1 }
        }
        let mut message = self.write(query, low, &[]);
        if let Some(flags) = message.get_mut(2) {
            *flags |= 0x02;
        }
        message
    }

    fn write(&self, query: &Query, answers: usize, additionals: &[Record]) -> Vec<u8> {
        let (code, extended) = self.code.bits();
        let authoritative = if self.is_authoritative { 0x0400 } else { 0 };
        let mut writer = Writer::default();
        let count = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
        let additional = count(additionals.len() + usize::from(query.edns.is_some()));
        // A response, from a server that can ask others.
        let flags = 0x8080 | query.flags | authoritative | code;
        for word in [query.id, flags, 1, count(answers), count(self.authorities.len()), additional] {
            writer.u16(word);
        }
        writer.known.insert(query.name.clone(), HEADER);
        writer.bytes.extend_from_slice(&query.question);
        for record in self.answers.iter().take(answers).chain(&self.authorities).chain(additionals) {
            writer.record(record);
        }
        if query.edns.is_some() {
            writer.opt(extended);
        }
        writer.bytes
    }
}

/// A response without a question, to what cannot be read.
fn bare_response(id: u16, flags: u16, code: Code) -> Vec<u8> {
    let flags = 0x8080 | flags & 0x7910 | code.bits().0;
    [id, flags, 0, 0, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Whether a message of another server responds to a query that was sent to it.
pub(super) fn responds_to(response: &[u8], query: &[u8]) -> bool {
    let question = |message: &[u8]| {
        let mut reader = Reader { message, position: 0 };
        let header = reader.header()?;
        let name = reader.name()?;
        Some((header.id, header.questions, name, reader.u16()?, reader.u16()?))
    };
    let is_response = response.get(2).is_some_and(|flags| flags & 0x80 != 0);
    is_response && question(response).is_some_and(|answered| question(query) == Some(answered))
}

/// Whether a response was cut.
pub(super) fn is_truncated(response: &[u8]) -> bool {
    response.get(2).is_some_and(|flags| flags & 0x02 != 0)
}

/// The addresses and aliases in a response of another server.
pub(super) fn addresses_in(response: &[u8]) -> Vec<Record> {
    let mut reader = Reader { message: response, position: 0 };
    let mut records = Vec::new();
    let Some(header) = reader.header() else { return records };
    if reader.name().and_then(|_| reader.u16()).and_then(|_| reader.u16()).is_none() {
        return records;
    }
    for _ in 0..header.answers {
        let Some(record) = reader.record() else { break };
        let data = response.get(record.data.clone()).unwrap_or_default();
        let data = match record.kind {
            types::A => <[u8; 4]>::try_from(data).ok().map(|octets| Data::A(octets.into())),
            types::AAAA => <[u8; 16]>::try_from(data).ok().map(|octets| Data::Aaaa(octets.into())),
            types::CNAME => Reader { message: response, position: record.data.start }.name().map(Data::Cname),
            _ => None,
        };
        records.extend(data.map(|data| Record { name: record.name, ttl: record.ttl, data }));
    }
    records
}

struct Header {
    id: u16,
    flags: u16,
    questions: u16,
    answers: u16,
    authorities: u16,
    additionals: u16,
}

struct RawRecord {
    name: String,
    kind: u16,
    class: u16,
    ttl: u32,
    data: std::ops::Range<usize>,
}

struct Reader<'a> {
    message: &'a [u8],
    position: usize,
}

impl Reader<'_> {
    fn u8(&mut self) -> Option<u8> {
        let byte = *self.message.get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.u8()?, self.u8()?]))
    }

    fn header(&mut self) -> Option<Header> {
        Some(Header {
            id: self.u16()?,
            flags: self.u16()?,
            questions: self.u16()?,
            answers: self.u16()?,
            authorities: self.u16()?,
            additionals: self.u16()?,
        })
    }

    /// A name in lower case. Bytes that no name of the cluster has are replaced; the message itself keeps them.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        let mut end = None;
        let mut jumps = 0;
        loop {
            let length = self.u8()?;
            match length {
                0 => break,
                1..=63 => {
                    let label = self.message.get(self.position..self.position + usize::from(length))?;
                    self.position += label.len();
                    if !name.is_empty() {
                        name.push('.');
                    }
                    let plain = |byte: &u8| match byte.to_ascii_lowercase() {
                        byte @ (b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_') => char::from(byte),
                        _ => char::REPLACEMENT_CHARACTER,
                    };
                    name.extend(label.iter().map(plain));
                }
                0xC0.. => {
                    let target = u16::from_be_bytes([length & 0x3F, self.u8()?]);
                    end.get_or_insert(self.position);
                    jumps += 1;
                    self.position = usize::from(target);
                }
                _ => return None,
            }
            if jumps > NAME || name.chars().count() > NAME {
                return None;
            }
        }
        if let Some(end) = end {
            self.position = end;
        }
        Some(name)
    }

    fn record(&mut self) -> Option<RawRecord> {
        let name = self.name()?;
        let (kind, class) = (self.u16()?, self.u16()?);
        let ttl = u32::from(self.u16()?) << 16 | u32::from(self.u16()?);
        let length = usize::from(self.u16()?);
        let data = self.position..self.position + length;
        self.message.get(data.clone())?;
        self.position = data.end;
        Some(RawRecord { name, kind, class, ttl, data })
    }
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    /// Where names were written that others can point to.
    known: HashMap<String, usize>,
}

impl Writer {
    fn u16(&mut self, word: u16) {
        self.bytes.extend_from_slice(&word.to_be_bytes());
    }

    fn u32(&mut self, word: u32) {
        self.bytes.extend_from_slice(&word.to_be_bytes());
    }

    /// A name; with `may_point`, its end may be a pointer to one that was written before.
    fn name(&mut self, name: &str, may_point: bool) {
        let mut rest = name;
        while !rest.is_empty() {
            if let Some(position) = self.known.get(rest).filter(|_| may_point)
                && let Ok(position) = u16::try_from(*position)
                && position < 0x4000
            {
                return self.u16(0xC000 | position);
            }
            self.known.entry(rest.to_owned()).or_insert(self.bytes.len());
            let (label, after) = rest.split_once('.').unwrap_or((rest, ""));
            let label = label.as_bytes().get(..63).unwrap_or(label.as_bytes());
            self.bytes.push(u8::try_from(label.len()).unwrap_or_default());
            self.bytes.extend_from_slice(label);
            rest = after;
        }
        self.bytes.push(0);
    }

    fn record(&mut self, record: &Record) {
        self.name(&record.name, true);
        let kind = match &record.data {
            Data::A(_) => types::A,
            Data::Aaaa(_) => types::AAAA,
            Data::Cname(_) => types::CNAME,
            Data::Ns(_) => types::NS,
            Data::Ptr(_) => types::PTR,
            Data::Txt(_) => types::TXT,
            Data::Srv { .. } => types::SRV,
            Data::Soa { .. } => types::SOA,
        };
        self.u16(kind);
        self.u16(CLASS_IN);
        self.u32(record.ttl);
        let length = self.bytes.len();
        self.u16(0);
        self.data(&record.data);
        let written = u16::try_from(self.bytes.len() - length - 2).unwrap_or_default();
        if let Some(place) = self.bytes.get_mut(length..length + 2) {
            place.copy_from_slice(&written.to_be_bytes());
        }
    }

    fn data(&mut self, data: &Data) {
        match data {
            Data::A(address) => self.bytes.extend_from_slice(&address.octets()),
            Data::Aaaa(address) => self.bytes.extend_from_slice(&address.octets()),
            Data::Cname(name) | Data::Ns(name) | Data::Ptr(name) => self.name(name, true),
            Data::Txt(text) => {
                let text = text.as_bytes().get(..255).unwrap_or(text.as_bytes());
                self.bytes.push(u8::try_from(text.len()).unwrap_or_default());
                self.bytes.extend_from_slice(text);
            }
            Data::Srv { port, target } => {
                // Priority and weight are equal for all.
                self.u16(0);
                self.u16(100);
                self.u16(*port);
                // RFC 2782: the target is not compressed.
                self.name(target, false);
            }
            Data::Soa { server, mailbox, serial, minimum } => {
                self.name(server, true);
                self.name(mailbox, true);
                // Refresh, retry and expiry are for secondary servers, of which there are none.
                for word in [*serial, 7200, 1800, 86400, *minimum] {
                    self.u32(word);
                }
            }
        }
    }

    /// The EDNS record: the size of messages that are taken, and the rest of the response code.
    fn opt(&mut self, extended_code: u8) {
        self.bytes.push(0);
        self.u16(types::OPT);
        self.u16(EDNS_UDP);
        self.u32(u32::from(extended_code) << 24);
        self.u16(0);
    }
}
