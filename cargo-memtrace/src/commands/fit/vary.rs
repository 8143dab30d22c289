//! The argument that varies from run to run.

/// A name and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Vary {
    pub(super) name: String,
    pub(super) values: VaryValues,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VaryValues {
    List(Vec<u64>),
    Range { from: u64, to: u64, step: u64 },
}

impl std::str::FromStr for Vary {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write NAME=1,2,4 or NAME=512..32768 or, in multiples of 128, NAME=512..32768/128".to_owned();
        let (name, values) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0).ok_or_else(wrong);
        let values = match values.split_once("..") {
            Some((from, to)) => {
                let (to, step) = to.split_once('/').unwrap_or((to, "1"));
                VaryValues::Range { from: number(from)?, to: number(to)?, step: number(step)? }
            }
            None => VaryValues::List(values.split(',').map(number).collect::<Result<_, _>>()?),
        };
        match values {
            VaryValues::Range { from, to, .. } if from > to => Err(wrong()),
            values => Ok(Self { name: name.to_owned(), values }),
        }
    }
}
