//! Where a MySQL server is, and who connects.

use std::path::PathBuf;

/// How a MySQL database is reached: `user:password@tcp(host:port)/database?charset=utf8mb4`, as Go's driver reads it.
#[derive(Clone, PartialEq, Eq)]
pub struct MySqlSettings {
    pub(super) user: String,
    pub(super) password: String,
    pub(super) address: Address,
    pub(super) database: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl std::fmt::Debug for MySqlSettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the password.
        write!(formatter, "{}@{:?}/{}", self.user, self.address, self.database)
    }
}

impl MySqlSettings {
    /// Reads a DSN.
    pub(crate) fn parse(dsn: &str) -> Result<Self, String> {
        let hint = "a MySQL DSN looks like user:password@tcp(host:3306)/database";
        let malformed = |why: &str| format!("cannot read the MySQL DSN: {why}; {hint}");
        let (dsn, options) = dsn.split_once('?').unwrap_or((dsn, ""));
        let (server, database) = dsn.rsplit_once('/').ok_or_else(|| malformed("it names no database"))?;
        if database.is_empty() {
            return Err(malformed("it names no database"));
        }
        for option in options.split('&').filter(|it| !it.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                // What is read and written is UTF-8, and times are numbers.
                "charset" | "collation" | "parseTime" | "loc" | "timeout" | "readTimeout"
                | "writeTimeout" => {}
                "tls" if matches!(value, "false" | "preferred") => {}
                "tls" => {
                    return Err(malformed(
                        "connections to MySQL are not encrypted, so tls cannot be asked for",
                    ));
                }
                other => return Err(malformed(&format!("the option {other} is not known"))),
            }
        }
        // A password may contain @, an address cannot.
        let (account, address) = server.rsplit_once('@').unwrap_or(("", server));
        let (user, password) = account.split_once(':').unwrap_or((account, ""));
        let inside =
            |kind: &str| address.strip_prefix(kind)?.strip_prefix('(')?.strip_suffix(')').map(str::to_owned);
        let address = if let Some(path) = inside("unix") {
            Address::Unix(path.into())
        } else if address.is_empty() || address == "tcp" {
            Address::Tcp("127.0.0.1".to_owned(), 3306)
        } else {
            let address =
                inside("tcp").ok_or_else(|| malformed("the address is neither tcp(…) nor unix(…)"))?;
            match address.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
                Some((host, Ok(port))) => Address::Tcp(host.trim_matches(['[', ']']).to_owned(), port),
                Some((_, Err(_))) => return Err(malformed("the port is no number")),
                None => Address::Tcp(address, 3306),
            }
        };
        Ok(Self {
            user: user.to_owned(),
            password: password.to_owned(),
            address,
            database: database.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, MySqlSettings};

    #[test]
    fn dsns_of_the_go_driver_are_read() {
        let settings = MySqlSettings::parse("mr:p@ss:word@tcp(db.example:3307)/registry?charset=utf8mb4");
        let settings = settings.expect("settings");
        assert_eq!((settings.user.as_str(), settings.password.as_str()), ("mr", "p@ss:word"));
        assert_eq!(settings.address, Address::Tcp("db.example".to_owned(), 3307));
        assert_eq!(settings.database, "registry");
        assert!(!format!("{settings:?}").contains("word"));
        let local = MySqlSettings::parse("root@unix(/run/mysqld.sock)/mr").expect("settings");
        assert_eq!(local.address, Address::Unix("/run/mysqld.sock".into()));
        let default = MySqlSettings::parse("root@tcp(localhost)/mr").expect("settings");
        assert_eq!(default.address, Address::Tcp("localhost".to_owned(), 3306));
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for (dsn, why) in [
            ("root@tcp(localhost:3306)", "names no database"),
            ("root@tcp(localhost:x)/mr", "the port is no number"),
            ("root@localhost/mr", "neither tcp"),
            ("root@tcp(localhost:3306)/mr?tls=true", "not encrypted"),
            ("root@tcp(localhost:3306)/mr?x=1", "the option x is not known"),
        ] {
            let error = MySqlSettings::parse(dsn).expect_err(dsn);
            assert!(error.contains(why), "{error}");
        }
    }
}
