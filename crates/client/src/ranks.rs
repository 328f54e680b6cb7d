//! Names that contain the rank: in a parallel program, the process with rank 3 uses the name `field/3` for its part of
//! `field`.

use std::env;

use crossdock_layout::{Status, name};

use crate::{Error, Result};

/// The variables in which launchers tell a process its rank, in the order in which they are read. The variable of the
/// launcher that started the process comes before the variable of the launcher that started the process's container.
const VARIABLES: [&str; 6] =
    ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID", "CROSSDOCK_RANK"];

/// This process's rank as set by Open MPI, MPICH, MVAPICH, Slurm or `crossdock run`. A process without a rank has rank
/// 0.
///
/// # Errors
/// `INVALID` if a variable does not hold a number.
pub fn rank_of_environment() -> Result<u32> {
    rank_in(|variable| env::var(variable).ok())
}

fn rank_in(variable: impl Fn(&str) -> Option<String>) -> Result<u32> {
    for name in VARIABLES {
        if let Some(text) = variable(name).filter(|text| !text.is_empty()) {
            return text
                .trim()
                .parse()
                .map_err(|_| Error::new(Status::Invalid, format!("{name} is '{text}'; it has to be a number from 0")));
        }
    }
    Ok(0)
}

/// Appends the rank to a name: `field` becomes `field/3` for rank 3. If `rank` is `None`, the rank is this process's
/// rank ([`rank_of_environment`]). A program that has an MPI communicator passes its rank in the communicator.
///
/// # Errors
/// `INVALID` if the name is invalid or becomes too long, or if the launcher's environment variable is not a number.
pub fn ranked(base: &str, rank: Option<u32>) -> Result<String> {
    let rank = rank.map_or_else(rank_of_environment, Ok)?;
    let whole = format!("{base}/{rank}");
    name::check(&whole).map_err(|why| Error::bad_name("object of a rank", &whole, why))?;
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_starter_of_the_process_numbers_it() {
        let mpich = |v: &str| match v {
            "PMI_RANK" => Some("3".to_owned()),
            "CROSSDOCK_RANK" => Some("0".to_owned()),
            _ => None,
        };
        assert_eq!(rank_in(mpich).unwrap(), 3);
        assert_eq!(rank_in(|v| (v == "CROSSDOCK_RANK").then(|| "2".into())).unwrap(), 2);
        assert_eq!(rank_in(|_| None).unwrap(), 0);
    }

    #[test]
    fn a_rank_that_is_no_number_is_told() {
        let error = rank_in(|v| (v == "SLURM_PROCID").then(|| "three".into())).unwrap_err();
        assert!(error.to_string().contains("SLURM_PROCID is 'three'"), "{error}");
    }

    #[test]
    fn ranked_names_are_names() {
        assert_eq!(ranked("field", Some(3)).unwrap(), "field/3");
        assert_eq!(ranked("a/b", Some(0)).unwrap(), "a/b/0");
        for bad in ["", "a b", "..", "/x"] {
            assert_eq!(ranked(bad, Some(1)).unwrap_err().status, Status::Invalid, "{bad}");
        }
    }
}
