//! The User-based Security Model (RFC 3414) with HMAC-SHA-256 of 192 bits (RFC 7860, usmHMAC192SHA256AuthProtocol) and AES-128 in CFB mode
//! (RFC 3826, usmAesCfb128Protocol).
//!
//! A message is written twice: with zeros in place of the signature, over which the signature is computed, and then with it (RFC 3414, section 6.3.1).

use super::ENTERPRISE;
use super::Engine;
use super::ber::{SEQUENCE, element, integer, octets, sequence};
use aes::Aes128;
use aes::cipher::KeyIvInit;
use forebay_api::{SnmpLevel, SnmpTrap};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// Bytes of the signature: 192 bits.
pub const SIGNATURE_BYTES: usize = 24;
/// snmpEngineBoots and snmpEngineTime (RFC 3414, section 2.2.2).
pub const BOOTS_MAX: u32 = 0x7fff_ffff;
/// The largest UDP payload over IPv4.
const MESSAGE_BYTES_MAX: u32 = 65_507;
/// RFC 3411, section 5: snmpEngineID of at most 32 bytes; ours are 5 and 16.
const ENGINE_HASH_BYTES: usize = 16;
/// "Octets, administratively assigned" in an engine ID.
const ENGINE_FORMAT_OCTETS: u8 = 5;
/// SnmpSecurityModel (RFC 3411, section 5).
const SECURITY_MODEL_USM: u32 = 3;
const FLAG_SIGNED: u8 = 1;
const FLAG_ENCRYPTED: u8 = 2;

type Key = [u8; 32];

/// When a message is sent, by the engine's clock, and what makes its encryption unique.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub boots: u32,
    pub time_s: u32,
    pub salt: u64,
}

/// The engine ID of an appliance (RFC 3411, section 5, SnmpEngineID): the same as long as its identifier is.
pub fn engine_id(appliance_id: &str) -> Vec<u8> {
    let mut id = (ENTERPRISE | 0x8000_0000).to_be_bytes().to_vec();
    id.push(ENGINE_FORMAT_OCTETS);
    id.extend_from_slice(&Sha256::digest(appliance_id)[..ENGINE_HASH_BYTES]);
    id
}

/// A password made into a key for one engine: hashed over a megabyte of its repetitions, then with the engine's ID (RFC 3414, section 2.6 and appendix A.2,
/// with the hash of RFC 7860, section 4.1).
pub fn localized_key(password: &str, engine_id: &[u8]) -> Key {
    const EXPANDED: usize = 1 << 20;
    let password = password.as_bytes();
    let mut hash = Sha256::new();
    if !password.is_empty() {
        // Whole repetitions in blocks of about 4 KiB, and the rest of the megabyte.
        let block = password.repeat(4096_usize.div_ceil(password.len()));
        let mut left = EXPANDED;
        while left > 0 {
            let taken = left.min(block.len());
            hash.update(&block[..taken]);
            left -= taken;
        }
    }
    let key = hash.finalize();
    let mut localized = Sha256::new();
    localized.update(key);
    localized.update(engine_id);
    localized.update(key);
    localized.finalize().into()
}

/// A user with keys for one engine.
pub struct User {
    name: String,
    authentication: Key,
    privacy: Option<Key>,
}

impl User {
    /// Takes some milliseconds.
    pub fn new(channel: &SnmpTrap, engine_id: &[u8]) -> User {
        User {
            name: channel.user.clone(),
            authentication: localized_key(channel.authentication_password.expose(), engine_id),
            privacy: match channel.level {
                SnmpLevel::AuthPriv => Some(localized_key(channel.privacy_password.expose(), engine_id)),
                SnmpLevel::AuthNoPriv => None,
            },
        }
    }
}

/// An SNMPv3 message (RFC 3412, section 6) around a PDU.
pub fn message(engine: &Engine, user: &User, stamp: Stamp, id: u32, pdu: &[u8]) -> Vec<u8> {
    // ScopedPDU: context engine, context name, PDU.
    let mut data = sequence(SEQUENCE, &[octets(&engine.id), octets(b""), pdu.to_vec()]);
    let mut flags = FLAG_SIGNED;
    let mut salt = Vec::new();
    if let Some(key) = &user.privacy {
        flags |= FLAG_ENCRYPTED;
        salt = stamp.salt.to_be_bytes().to_vec();
        data = octets(&encrypt(key, stamp, data));
    }
    let write = |signature: &[u8]| {
        let header = sequence(
            SEQUENCE,
            &[integer(id), integer(MESSAGE_BYTES_MAX), octets(&[flags]), integer(SECURITY_MODEL_USM)],
        );
        let security = sequence(
            SEQUENCE,
            &[
                octets(&engine.id),
                integer(stamp.boots),
                integer(stamp.time_s),
                octets(user.name.as_bytes()),
                octets(signature),
                octets(&salt),
            ],
        );
        element(SEQUENCE, &[integer(3), header, octets(&security), data.clone()].concat())
    };
    let mut mac =
        Hmac::<Sha256>::new_from_slice(&user.authentication).expect("HMAC takes keys of any length");
    mac.update(&write(&[0; SIGNATURE_BYTES]));
    write(&mac.finalize().into_bytes()[..SIGNATURE_BYTES])
}

/// RFC 3826, section 3.1.4: AES-128 in CFB mode; the vector is boots, time and salt.
fn encrypt(key: &Key, stamp: Stamp, mut data: Vec<u8>) -> Vec<u8> {
    let mut vector = [0; 16];
    vector[..4].copy_from_slice(&stamp.boots.to_be_bytes());
    vector[4..8].copy_from_slice(&stamp.time_s.to_be_bytes());
    vector[8..].copy_from_slice(&stamp.salt.to_be_bytes());
    let cipher = cfb_mode::Encryptor::<Aes128>::new_from_slices(&key[..16], &vector)
        .expect("key and vector have 16 bytes each");
    cipher.encrypt(&mut data);
    data
}
