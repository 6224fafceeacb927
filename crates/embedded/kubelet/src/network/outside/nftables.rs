//! The few messages to nf_tables that the network needs: a table of our own with chains and rules, replaced as a whole
//! in one transaction.
//!
//! Rules are lists of expressions that the kernel runs in order until one does not hold, as `nft --debug=netlink`
//! prints them. A value is loaded into a register, compared there, and the last expression says what to do.

use std::io;
use std::net::Ipv4Addr;

use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use super::super::Subnet;

const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;
/// Marks attributes that consist of attributes.
const NESTED: u16 = 0x8000;
/// The netlink subsystem of nf_tables, and the messages around a transaction.
const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const ERROR: u16 = 2;
const FAMILY_IPV4: u8 = 2;
/// The register that values are loaded into.
const REGISTER: u32 = 1;
const REGISTER_VERDICT: u32 = 0;
/// An interface name in a register.
const NAME: usize = 16;
const ICMP: u8 = 1;
const TCP: u8 = 6;

/// Messages of nf_tables.
#[derive(Clone, Copy)]
enum Operation {
    NewTable = 0,
    DeleteTable = 2,
    NewChain = 3,
    NewRule = 6,
}

/// Where in the path of a packet the rules of a chain are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hook {
    Prerouting = 0,
    Forward = 2,
    Output = 3,
    Postrouting = 4,
}

/// A chain.
#[derive(Debug)]
pub(super) struct Chain {
    pub name: &'static str,
    /// `nat` or `filter`.
    pub kind: &'static str,
    pub hook: Hook,
    pub priority: i32,
    pub rules: Vec<Vec<Expression>>,
}

/// A step of a rule.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    /// The source is one address.
    From(Ipv4Addr),
    /// The source address is in a range, or is not.
    Source(Subnet, bool),
    /// The destination is in a range, or is not.
    Destination(Subnet, bool),
    /// It came by an interface, or did not.
    Input(String, bool),
    /// It leaves by an interface, or does not.
    Output(String, bool),
    /// It belongs to ICMP.
    Icmp,
    /// It belongs to TCP.
    Tcp,
    /// It begins a connection, or belongs to none.
    NewConnection,
    /// Its source becomes the address of this machine.
    Masquerade,
    /// It goes to a port of this machine.
    Redirect(u16),
    /// It is dropped.
    Drop,
}

/// Replaces a table of IPv4.
pub(super) fn replace(table: &str, chains: &[Chain]) -> io::Result<()> {
    let mut batch = Batch::new();
    // A table that does not exist cannot be deleted: it is made first.
    batch.table(Operation::NewTable, table);
    batch.table(Operation::DeleteTable, table);
    batch.table(Operation::NewTable, table);
    for chain in chains {
        batch.chain(table, chain);
        for rule in &chain.rules {
            batch.rule(table, chain.name, rule);
        }
    }
    batch.commit()
}

/// Deletes a table; one that does not exist is fine.
pub(super) fn delete(table: &str) -> io::Result<()> {
    let mut batch = Batch::new();
    batch.table(Operation::NewTable, table);
    batch.table(Operation::DeleteTable, table);
    batch.commit()
}

struct Batch {
    bytes: Vec<u8>,
    /// Messages so far.
    sequence: u32,
}

impl Batch {
    fn new() -> Self {
        let mut batch = Self { bytes: Vec::new(), sequence: 0 };
        batch.message(BATCH_BEGIN, REQUEST, 0, SUBSYSTEM, &[]);
        batch
    }

    fn message(&mut self, kind: u16, flags: u16, family: u8, resource: u16, attributes: &[u8]) {
        let length = u32::try_from(16 + 4 + attributes.len()).unwrap_or_default();
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&self.sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&[family, 0]);
        self.bytes.extend_from_slice(&resource.to_be_bytes());
        self.bytes.extend_from_slice(attributes);
        self.sequence += 1;
    }

    fn operation(&mut self, operation: Operation, attributes: &[u8]) {
        let flags = match operation {
            Operation::DeleteTable => REQUEST | ACK,
            Operation::NewRule => REQUEST | ACK | CREATE | APPEND,
            Operation::NewTable | Operation::NewChain => REQUEST | ACK | CREATE,
        };
        self.message(SUBSYSTEM << 8 | operation as u16, flags, FAMILY_IPV4, 0, attributes);
    }

    fn table(&mut self, operation: Operation, name: &str) {
        self.operation(operation, &text(1, name));
    }

    fn chain(&mut self, table: &str, chain: &Chain) {
        let hook = nested(4, &[word(1, chain.hook as u32), attribute(2, &chain.priority.to_be_bytes())]);
        // Packets that no rule decides about are accepted.
        let parts = [text(1, table), text(3, chain.name), hook, word(5, 1), text(7, chain.kind)];
        self.operation(Operation::NewChain, &parts.concat());
    }

    fn rule(&mut self, table: &str, chain: &str, rule: &[Expression]) {
        let expressions: Vec<Vec<u8>> = rule.iter().flat_map(Expression::encode).collect();
        let parts = [text(1, table), text(2, chain), nested(4, &expressions)];
        self.operation(Operation::NewRule, &parts.concat());
    }

    /// All of it takes effect, or nothing.
    fn commit(mut self) -> io::Result<()> {
        self.message(BATCH_END, REQUEST, 0, SUBSYSTEM, &[]);
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.send(&self.bytes, 0)?;
        // Every message but the two around them is acknowledged.
        let mut pending = self.sequence.saturating_sub(2);
        while pending > 0 {
            let (received, _) = socket.recv_from_full()?;
            for code in acknowledgements(&received) {
                if code != 0 {
                    return Err(io::Error::from_raw_os_error(-code));
                }
                pending = pending.saturating_sub(1);
            }
        }
        Ok(())
    }
}

/// The codes of all acknowledgements in what the kernel sent: zero, or a negative error number.
fn acknowledgements(mut received: &[u8]) -> Vec<i32> {
    let mut codes = Vec::new();
    while let (Some(length), Some(kind)) = (field(received, 0), received.get(4..6)) {
        let length = usize::try_from(u32::from_ne_bytes(length)).unwrap_or(usize::MAX).next_multiple_of(4);
        if kind == ERROR.to_ne_bytes() {
            codes.extend(field(received, 16).map(i32::from_ne_bytes));
        }
        received = received.get(length.max(16)..).unwrap_or_default();
    }
    codes
}

fn field(bytes: &[u8], position: usize) -> Option<[u8; 4]> {
    bytes.get(position..position + 4)?.try_into().ok()
}

impl Expression {
    fn encode(&self) -> Vec<Vec<u8>> {
        match self {
            Self::From(address) => vec![payload(12, 4), compare(true, &address.octets())],
            Self::Source(range, is_in) => in_range(12, *range, *is_in),
            Self::Destination(range, is_in) => in_range(16, *range, *is_in),
            Self::Input(name, is_it) => interface(6, name, *is_it),
            Self::Output(name, is_it) => interface(7, name, *is_it),
            Self::Icmp => vec![payload(9, 1), compare(true, &[ICMP])],
            Self::Tcp => vec![payload(9, 1), compare(true, &[TCP])],
            Self::NewConnection => {
                // Invalid is the first bit of the state, new is the fourth.
                let mask = 9_u32.to_ne_bytes();
                vec![element("ct", &[word(1, REGISTER), word(2, 0)]), bits(mask), compare(false, &[0; 4])]
            }
            Self::Masquerade => vec![element("masq", &[])],
            Self::Redirect(port) => vec![
                element("immediate", &[word(1, REGISTER), nested(2, &[attribute(1, &port.to_be_bytes())])]),
                element("redir", &[word(1, REGISTER)]),
            ],
            Self::Drop => {
                let verdict = nested(2, &[nested(2, &[word(1, 0)])]);
                vec![element("immediate", &[word(1, REGISTER_VERDICT), verdict])]
            }
        }
    }
}

/// An address at this place of the IPv4 header is in a range, or is not.
fn in_range(offset: u32, range: Subnet, is_in: bool) -> Vec<Vec<u8>> {
    let mask = range.netmask().octets();
    let network: Ipv4Addr = range.network();
    vec![payload(offset, 4), bits(mask), compare(is_in, &network.octets())]
}

/// The name of an interface, which is padded in the register.
fn interface(key: u32, name: &str, is_it: bool) -> Vec<Vec<u8>> {
    let mut padded = name.as_bytes().to_vec();
    padded.resize(NAME, 0);
    vec![element("meta", &[word(1, REGISTER), word(2, key)]), compare(is_it, &padded)]
}

/// Loads bytes of the IPv4 header.
fn payload(offset: u32, length: u32) -> Vec<u8> {
    element("payload", &[word(1, REGISTER), word(2, 1), word(3, offset), word(4, length)])
}

/// Keeps only some bits of the register.
fn bits(mask: [u8; 4]) -> Vec<u8> {
    let value = |kind: u16, bytes: &[u8]| nested(kind, &[attribute(1, bytes)]);
    element(
        "bitwise",
        &[word(1, REGISTER), word(2, REGISTER), word(3, 4), value(4, &mask), value(5, &[0; 4])],
    )
}

/// The register has a value, or has another one.
fn compare(is_equal: bool, value: &[u8]) -> Vec<u8> {
    let operation = u32::from(!is_equal);
    element("cmp", &[word(1, REGISTER), word(2, operation), nested(3, &[attribute(1, value)])])
}

/// An expression in a list of them.
fn element(name: &str, data: &[Vec<u8>]) -> Vec<u8> {
    nested(1, &[text(1, name), nested(2, data)])
}

fn word(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

fn nested(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | NESTED, &parts.concat())
}

/// Length, kind and value, padded to whole words.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or_default();
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nested() {
        assert_eq!(attribute(3, b"ab"), [6, 0, 3, 0, b'a', b'b', 0, 0]);
        assert_eq!(nested(4, &[word(1, 2)]), [12, 0, 4, 0x80, 8, 0, 1, 0, 0, 0, 0, 2]);
        assert_eq!(text(1, "abc"), [8, 0, 1, 0, b'a', b'b', b'c', 0]);
    }

    #[test]
    fn acknowledgements_are_found_among_other_messages() {
        let message = |kind: u16, code: i32| {
            let mut bytes = 36_u32.to_ne_bytes().to_vec();
            bytes.extend_from_slice(&kind.to_ne_bytes());
            bytes.extend_from_slice(&[0; 10]);
            bytes.extend_from_slice(&code.to_ne_bytes());
            bytes.extend_from_slice(&[0; 16]);
            bytes
        };
        let received = [message(ERROR, 0), message(2560, 7), message(ERROR, -95)].concat();
        assert_eq!(acknowledgements(&received), [0, -95]);
        assert_eq!(acknowledgements(&received[..10]), [0_i32; 0]);
    }
}
