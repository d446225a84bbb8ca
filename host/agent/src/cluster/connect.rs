//! How the agent reaches the API server: by an address, never by a cluster name, since it starts before cluster DNS.
//! The client that is made here repeats nothing by itself; waiting and trying again are the life's.

use std::path::PathBuf;
use std::time::Duration;

use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// No connection takes longer to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the API server is, and who the agent is to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// By the variables and the service account that Kubernetes gives every Pod.
    InCluster,
    /// By this URL, with a service account's token and CA; both files are read again as they rotate.
    Server {
        /// `https://` and a host, with a port where it isn't 443.
        url: String,
        /// The token.
        token: PathBuf,
        /// The CA that the server's certificate is checked against.
        ca: PathBuf,
    },
    /// By the current context of this kubeconfig file.
    Kubeconfig(PathBuf),
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The process does not run in a Pod, or its service account is not mounted.
    #[error(
        "the API server can't be found by what Kubernetes gives a Pod; run in a Pod with a service account, or set `cluster.apiServer` or `cluster.kubeconfig`"
    )]
    InCluster(#[source] InClusterError),
    /// The kubeconfig is missing or wrong.
    #[error("the kubeconfig {path} can't be used")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// The URL is wrong.
    #[error("the API server's URL {url:?} in `cluster.apiServer` is not a URL such as https://10.0.0.1:6443")]
    Url {
        /// What was given.
        url: String,
    },
    /// The client can't be made: a certificate, key or token is missing or wrong.
    #[error("the credentials for the API server can't be used")]
    Client(#[source] Box<kube::Error>),
}

/// A client for the API server. No request is made. Needs a tokio runtime.
///
/// # Errors
/// When files are missing or wrong; each error names the file or the key that helps.
pub async fn connect(access: &Access) -> Result<kube::Client, ConnectError> {
    let mut config = match access {
        Access::InCluster => kube::Config::incluster().map_err(ConnectError::InCluster)?,
        Access::Server { url, token, ca } => {
            let uri: http::Uri = url.parse().map_err(|_| ConnectError::Url { url: url.clone() })?;
            if uri.scheme_str() != Some("https") || uri.host().is_none() {
                return Err(ConnectError::Url { url: url.clone() });
            }
            let mut config = kube::Config::new(uri);
            config.auth_info.token_file = Some(token.display().to_string());
            config.root_cert_file = Some(ca.clone());
            config
        }
        Access::Kubeconfig(path) => {
            let wrong = |source| ConnectError::Kubeconfig { path: path.clone(), source: Box::new(source) };
            let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(wrong)?
        }
    };
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    kube::Client::try_from(config).map_err(|error| ConnectError::Client(Box::new(error)))
}
