//! Tokens of service accounts: signed JSON, made and checked here.

use std::sync::Arc;

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
        UnparsedPublicKey,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{Caller, serviceaccount};
use crate::{api::Api, json::text, store::key_of};

/// Who signs tokens, as they say.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The key that tokens are signed with.
#[derive(Clone)]
pub struct Tokens {
    key: Arc<EcdsaKeyPair>,
    key_id: String,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// The key cannot be made or read.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the key that signs service account tokens cannot be used")]
pub struct KeyError;

impl Tokens {
    /// Makes a key; returned with its private form, to be kept.
    pub fn generate() -> Result<(Self, Vec<u8>), KeyError> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map_err(|_| KeyError)?;
        let bytes = document.as_ref().to_vec();
        Ok((Self::read(&bytes)?, bytes))
    }

    /// Reads a key that was kept.
    pub fn read(private: &[u8]) -> Result<Self, KeyError> {
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, private).map_err(|_| KeyError)?;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.public_key().as_ref());
        let key_id = URL_SAFE_NO_PAD.encode(digest.as_ref());
        Ok(Self { key: Arc::new(key), key_id })
    }

    /// Signs claims.
    pub fn sign(&self, claims: &Value) -> Result<String, KeyError> {
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).map_err(|_| KeyError)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())))
    }

    /// The claims of a token that was signed here and has not expired.
    pub fn verify(&self, token: &str, now: jiff::Timestamp) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .ok()?;
        let (_, claims) = signed.split_once('.')?;
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        let is_in_time = claims.get("exp").and_then(Value::as_i64)? > now.as_second();
        (is_in_time && text(&claims, "/iss") == ISSUER).then_some(claims)
    }

    /// The public key as a JSON Web Key Set.
    pub fn key_set(&self) -> Value {
        let point = self.key.public_key().as_ref();
        let part = |from: usize, to: usize| URL_SAFE_NO_PAD.encode(point.get(from..to).unwrap_or_default());
        json!({"keys": [{"use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": part(1, 33), "y": part(33, 65)}]})
    }
}

/// Who a token is of, if it is good: signed here, in time, for one of `audiences`, and its account and
/// whatever it is bound to are still there.
pub(crate) fn authenticate(api: &Api, token: &str, audiences: &[&str]) -> Option<(Caller, Vec<String>)> {
    let claims = api.tokens().verify(token, api.now())?;
    let for_whom: Vec<String> = crate::json::texts(&claims, "/aud").map(str::to_owned).collect();
    let common: Vec<String> =
        for_whom.iter().filter(|one| audiences.contains(&one.as_str())).cloned().collect();
    if common.is_empty() {
        return None;
    }
    let bound = claims.get("kubernetes.io")?;
    let namespace = text(bound, "/namespace");
    let (name, uid) = (text(bound, "/serviceaccount/name"), text(bound, "/serviceaccount/uid"));
    let is_there = |bucket: &str, key: &str, uid: &str| {
        api.store().get(bucket, key).is_some_and(|entry| *entry.head.uid == *uid)
    };
    if !is_there("core/serviceaccounts", &key_of(namespace, name), uid) {
        return None;
    }
    let mut caller =
        Caller::known(serviceaccount::user_name(namespace, name), serviceaccount::groups(namespace));
    uid.clone_into(&mut caller.uid);
    let mut add = |key: &str, value: String| {
        caller.extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
    };
    add("credential-id", format!("JTI={}", text(&claims, "/jti")));
    for (kind, bucket, place) in
        [("pod", "core/pods", namespace), ("secret", "core/secrets", namespace), ("node", "core/nodes", "")]
    {
        if let Some(object) = bound.get(kind) {
            let (name, uid) = (text(object, "/name"), text(object, "/uid"));
            if !is_there(bucket, &key_of(place, name), uid) {
                return None;
            }
            if kind != "secret" {
                add(&format!("{kind}-name"), name.to_owned());
                add(&format!("{kind}-uid"), uid.to_owned());
            }
        }
    }
    Some((caller, common))
}
