//! The choice of a node's transports, by the option `--transport`.

#[cfg(feature = "grpc")]
use crate::Grpc;
use crate::listener::{self, Accepts};
use crate::{Accept, Error, OtherTransport, Result, Tcp, Transport, Trust, Ucx};
use crossdock_layout::Status;
use std::fmt;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::sync::Arc;

/// The transports that a node may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Each pair of nodes uses the best transport that works between the two.
    #[default]
    Auto,
    /// TCP only.
    Tcp,
    /// gRPC only.
    Grpc,
    /// Works like `Auto`, but pulls go by UCX where both nodes can use it.
    Ucx,
}

/// The reason why a node does not use UCX, if its operator has not asked for UCX.
const NOT_CHOSEN: &str = "UCX is used only with --transport ucx on a trusted network";

/// All choices, each with its word for the option `--transport`.
const WORDS: [(Choice, &str); 4] =
    [(Choice::Auto, "auto"), (Choice::Tcp, "tcp"), (Choice::Grpc, "grpc"), (Choice::Ucx, "ucx")];

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WORDS.iter().find(|(choice, _)| choice == self).expect("each choice has a word").1)
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let found = WORDS.iter().find(|(_, word)| *word == text).map(|(choice, _)| *choice);
        found.ok_or_else(|| format!("'{text}' is no transport; it is {}", WORDS.map(|(_, word)| word).join(", ")))
    }
}

/// The transports of one node. Cloning this value is cheap.
#[derive(Clone)]
pub struct Transports {
    trust: Trust,
    accepts: Accepts,
    /// The transports by which this node connects to other nodes, the best first.
    dials: Vec<Arc<dyn Transport>>,
    other: OtherTransport,
}

impl fmt::Debug for Transports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.dials.iter().map(|transport| transport.name())).finish()
    }
}

impl Transports {
    /// Makes the chosen transports, whose connections are protected as `trust` says.
    ///
    /// # Errors
    /// This build does not have the chosen transport, or a transport cannot start its thread.
    pub fn new(trust: &Trust, choice: Choice) -> Result<Self> {
        let absent = |what: &str, hint| {
            let reason = format!("this build has no {what}");
            Err(Error::new(Status::Invalid, format!("use the transport {choice}"), reason).hint(hint))
        };
        let mut accepts = Accepts::default();
        let mut other = OtherTransport::none(NOT_CHOSEN);
        if choice == Choice::Ucx {
            other = match Ucx::load(trust) {
                Ok(ucx) => {
                    accepts.ucx = Some(ucx.fabric());
                    OtherTransport::new(Arc::new(ucx))
                }
                Err(why) => OtherTransport::none(format!("no UCX: {why}")),
            };
        }
        let mut transports = Self { trust: trust.clone(), accepts, dials: Vec::new(), other };
        if choice != Choice::Grpc {
            transports.accepts.tcp = true;
            transports.dials.push(Arc::new(Tcp::new(trust.clone())));
        }
        #[cfg(feature = "grpc")]
        if choice != Choice::Tcp {
            let grpc = Grpc::new(trust.clone())?;
            transports.accepts.grpc = Some(grpc.clone());
            transports.dials.push(Arc::new(grpc));
        }
        if transports.dials.is_empty() {
            return absent("gRPC", "build crossdock with `--features grpc`");
        }
        Ok(transports)
    }

    /// Gives the transports by which this node connects to other nodes, the best first.
    #[must_use]
    pub fn dials(&self) -> Vec<Arc<dyn Transport>> {
        self.dials.clone()
    }

    /// Gives the transport that carries only pulls, or the reason why this node has no such transport.
    #[must_use]
    pub fn other_transport(&self) -> OtherTransport {
        self.other.clone()
    }

    /// Gives the best transport of this node.
    #[must_use]
    pub fn best(&self) -> &Arc<dyn Transport> {
        &self.dials[0]
    }

    /// Listens at `address` (`host:port`; port 0 takes a free one). Peers may connect by each of the transports.
    ///
    /// # Errors
    /// The address is in use, or does not belong to this machine; or `trust` allows only loopback addresses, and the
    /// address is not one.
    pub fn listen(&self, address: &str) -> Result<Box<dyn Accept>> {
        listener::listen(&self.trust, address, self.accepts.clone())
    }

    /// Accepts connections from a socket that listens already.
    ///
    /// # Errors
    /// The descriptor is no TCP socket; or `trust` allows only loopback addresses, and the socket listens at another
    /// one.
    pub fn listen_on(&self, socket: OwnedFd) -> Result<Box<dyn Accept>> {
        listener::listen_on(&self.trust, socket, self.accepts.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::{Choice, WORDS};

    #[test]
    fn each_choice_has_a_word_and_other_words_are_refused() {
        for (choice, word) in WORDS {
            assert_eq!((word.parse(), choice.to_string()), (Ok(choice), word.to_owned()));
        }
        assert!("quic".parse::<Choice>().unwrap_err().contains("auto, tcp, grpc, ucx"));
    }
}
