//! How the server is told to connect to its database.

use quintet_api::modelregistry::v1beta1::{
    ConfigMapKeyValue, ModelRegistrySpec, MySqlConfig, PostgresConfig, SecretKeyValue,
};
use serde_json::{Value, json};

use crate::drift::absent;
use crate::objects::secret_variable;

/// Variables that a connection may need.
const VARIABLES: [&str; 3] = [POSTGRES_PASSWORD, POSTGRES_SSL_PASSWORD, MYSQL_PASSWORD];
const POSTGRES_PASSWORD: &str = "POSTGRES_PASSWORD";
const POSTGRES_SSL_PASSWORD: &str = "POSTGRES_SSLPASSWORD";
const MYSQL_PASSWORD: &str = "MYSQL_PASSWORD";

/// Volumes that a connection may need, and where they are mounted.
const VOLUMES: [(&str, &str); 7] = [
    ("postgres-ssl-cert", "/etc/postgres_ssl_cert"),
    ("postgres-ssl-key", "/etc/postgres_ssl_key"),
    ("postgres-ssl-rootcert", "/etc/postgres_ssl_rootcert"),
    ("mysql-ssl-cert", "/etc/mysql_ssl_cert"),
    ("mysql-ssl-key", "/etc/mysql_ssl_key"),
    ("mysql-ssl-rootcert", "/etc/mysql_ssl_rootcert"),
    ("mysql-ssl-rootcerts", "/etc/mysql_ssl_rootcerts"),
];

/// A connection to a database.
#[derive(Default)]
pub(super) struct Connection {
    /// Arguments of the server.
    pub(super) arguments: Vec<String>,
    /// Secret and key of variables, by name.
    variables: Vec<(&'static str, SecretKeyValue)>,
    /// Sources of volumes, by name.
    sources: Vec<(&'static str, Value)>,
}

impl Connection {
    /// The connection of a registry. If both databases are given, it is PostgreSQL.
    pub(super) fn of(spec: &ModelRegistrySpec) -> Self {
        match (&spec.postgres, &spec.mysql) {
            (Some(postgres), _) => Self::to_postgres(postgres),
            (None, Some(mysql)) => Self::to_mysql(mysql),
            (None, None) => Self::default(),
        }
    }

    fn to_postgres(postgres: &PostgresConfig) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let host = Some(text(&postgres.host)).filter(|host| !host.is_empty());
        let host = host.unwrap_or_else(|| text(&postgres.host_address));
        let password = if postgres.password_secret.is_some() { ":$(POSTGRES_PASSWORD)" } else { "" };
        let mode = postgres.ssl_mode.and_then(|mode| serde_json::to_value(mode).ok());
        let mode = mode.as_ref().and_then(Value::as_str).map(|mode| format!("?sslmode={mode}"));
        let dsn = format!(
            "postgresql://{}{password}@{host}:{}/{}{}",
            text(&postgres.username),
            postgres.port.unwrap_or(super::super::effective::POSTGRES_PORT),
            text(&postgres.database),
            mode.unwrap_or_default(),
        );
        let mut connection = Self::new("postgres", &dsn);
        connection.variable(POSTGRES_PASSWORD, postgres.password_secret.as_ref());
        connection.variable(POSTGRES_SSL_PASSWORD, postgres.ssl_password_secret.as_ref());
        connection.secret_file("ssl-cert", "postgres-ssl-cert", postgres.ssl_certificate_secret.as_ref());
        connection.secret_file("ssl-key", "postgres-ssl-key", postgres.ssl_key_secret.as_ref());
        connection.root_certificate(
            "postgres-ssl-rootcert",
            postgres.ssl_root_certificate_config_map.as_ref(),
            postgres.ssl_root_certificate_secret.as_ref(),
        );
        connection
    }

    fn to_mysql(mysql: &MySqlConfig) -> Self {
        let password = if mysql.password_secret.is_some() { ":$(MYSQL_PASSWORD)" } else { "" };
        let host = if mysql.host.is_empty() { "localhost" } else { &mysql.host };
        let dsn = format!(
            "{}{password}@tcp({host}:{})/{}?charset=utf8mb4",
            mysql.username,
            mysql.port.unwrap_or(3306),
            mysql.database,
        );
        let mut connection = Self::new("mysql", &dsn);
        connection.variable(MYSQL_PASSWORD, mysql.password_secret.as_ref());
        connection.secret_file("ssl-cert", "mysql-ssl-cert", mysql.ssl_certificate_secret.as_ref());
        connection.secret_file("ssl-key", "mysql-ssl-key", mysql.ssl_key_secret.as_ref());
        connection.root_certificate(
            "mysql-ssl-rootcert",
            mysql.ssl_root_certificate_config_map.as_ref(),
            mysql.ssl_root_certificate_secret.as_ref(),
        );
        let config_map = mysql.ssl_root_certificates_config_map_name.as_deref().map(config_map_source);
        let secret = mysql.ssl_root_certificates_secret_name.as_deref().map(secret_source);
        if let Some(source) = config_map.or(secret) {
            connection.option("ssl-ca", "/etc/mysql_ssl_rootcerts/");
            connection.sources.push(("mysql-ssl-rootcerts", source));
        }
        if let Some(cipher) = &mysql.ssl_cipher {
            connection.option("ssl-cipher", cipher);
        }
        if let Some(verify) = mysql.verify_server_cert {
            connection.option("ssl-verify-server-cert", &verify.to_string());
        }
        connection
    }

    fn new(type_: &str, dsn: &str) -> Self {
        let mut connection = Self::default();
        connection.option("type", type_);
        connection.option("dsn", dsn);
        connection
    }

    fn option(&mut self, name: &str, value: &str) {
        self.arguments.push(format!("--embedmd-database-{name}={value}"));
    }

    fn variable(&mut self, name: &'static str, secret: Option<&SecretKeyValue>) {
        self.variables.extend(secret.map(|secret| (name, secret.clone())));
    }

    /// A file in a volume of its own.
    fn file(&mut self, option: &str, volume: &'static str, key: &str, source: Value) {
        let path = VOLUMES.iter().find(|(name, _)| *name == volume).map_or("", |(_, path)| path);
        self.option(option, &format!("{path}/{key}"));
        self.sources.push((volume, source));
    }

    fn secret_file(&mut self, option: &str, volume: &'static str, secret: Option<&SecretKeyValue>) {
        if let Some(secret) = secret {
            self.file(option, volume, &secret.key, secret_source(&secret.name));
        }
    }

    fn root_certificate(
        &mut self,
        volume: &'static str,
        config_map: Option<&ConfigMapKeyValue>,
        secret: Option<&SecretKeyValue>,
    ) {
        match config_map {
            Some(map) => self.file("ssl-root-cert", volume, &map.key, config_map_source(&map.name)),
            None => self.secret_file("ssl-root-cert", volume, secret),
        }
    }

    /// All variables that a connection may need; those that this one does not must be absent.
    pub(super) fn env(&self) -> Vec<Value> {
        let variable = |name: &&'static str| {
            let found = self.variables.iter().find(|(other, _)| other == name);
            found.map_or_else(
                || absent("name", name),
                |(_, secret)| secret_variable(name, &secret.name, &secret.key),
            )
        };
        VARIABLES.iter().map(variable).collect()
    }

    /// All mounts, likewise.
    pub(super) fn mounts(&self) -> Vec<Value> {
        let mount = |(volume, path): &(&'static str, &str)| match self.source(volume) {
            Some(_) => json!({ "name": volume, "mountPath": path, "readOnly": true }),
            None => absent("mountPath", path),
        };
        VOLUMES.iter().map(mount).collect()
    }

    /// All volumes, likewise.
    pub(super) fn volumes(&self) -> Vec<Value> {
        let volume = |(volume, _): &(&'static str, &str)| match self.source(volume) {
            Some(source) => {
                let mut entry = source.clone();
                entry["name"] = (*volume).into();
                entry
            }
            None => absent("name", volume),
        };
        VOLUMES.iter().map(volume).collect()
    }

    fn source(&self, volume: &str) -> Option<&Value> {
        self.sources.iter().find(|(name, _)| *name == volume).map(|(_, source)| source)
    }
}

fn secret_source(name: &str) -> Value {
    json!({ "secret": { "secretName": name, "defaultMode": 0o600 } })
}

fn config_map_source(name: &str) -> Value {
    json!({ "configMap": { "name": name, "defaultMode": 0o600 } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(spec: Value) -> Vec<String> {
        Connection::of(&serde_json::from_value(spec).unwrap()).arguments.split_off(1)
    }

    #[test]
    fn connections_are_as_upstreams() {
        let file = |key: &str| json!({"name": "s", "key": key});
        let cases = [
            (json!({"postgres": {"hostAddress": "h", "username": "u"}}), vec!["dsn=postgresql://u@h:5432/"]),
            (
                json!({"postgres": {"host": "h", "hostAddress": "x", "username": "u", "database": "d", "port": 1,
                                    "passwordSecret": file("p"), "sslMode": "verify-ca", "sslRootCertificateConfigMap": file("c"),
                                    "sslRootCertificateSecret": file("r")}}),
                vec![
                    "dsn=postgresql://u:$(POSTGRES_PASSWORD)@h:1/d?sslmode=verify-ca",
                    "ssl-root-cert=/etc/postgres_ssl_rootcert/c",
                ],
            ),
            (
                json!({"mysql": {"host": "", "username": "u", "database": "d", "sslCertificateSecret": file("c"),
                                 "sslKeySecret": file("k"), "sslRootCertificatesSecretName": "many", "sslCipher": "x",
                                 "verifyServerCert": false}}),
                vec![
                    "dsn=u@tcp(localhost:3306)/d?charset=utf8mb4",
                    "ssl-cert=/etc/mysql_ssl_cert/c",
                    "ssl-key=/etc/mysql_ssl_key/k",
                    "ssl-ca=/etc/mysql_ssl_rootcerts/",
                    "ssl-cipher=x",
                    "ssl-verify-server-cert=false",
                ],
            ),
        ];
        for (spec, expected) in cases {
            let expected: Vec<_> =
                expected.iter().map(|option| format!("--embedmd-database-{option}")).collect();
            assert_eq!(arguments(spec.clone()), expected, "{spec}");
        }
    }

    #[test]
    fn what_a_connection_does_not_need_must_be_absent() {
        let connection = Connection::of(&ModelRegistrySpec::default());
        assert!(connection.env().iter().chain(&connection.volumes()).all(|item| item["$patch"] == "delete"));
        assert_eq!((connection.env().len(), connection.mounts().len()), (3, 7));
    }
}
