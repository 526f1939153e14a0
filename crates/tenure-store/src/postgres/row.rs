//! Converts PostgreSQL rows to core types, and timestamps to `timestamptz`.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{
    PgArgumentBuffer, PgHasArrayType, PgRow, PgTypeInfo, PgValueFormat, PgValueRef,
};
use sqlx::{Decode, Encode, Postgres, Row, Type};
use tenure_core::Timestamp;

/// Microseconds from the Unix epoch to the PostgreSQL epoch, 2000-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// A timestamp as parameter or column. The driver's own types would need a calendar library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(pub(crate) Timestamp);

impl Moment {
    /// `-infinity`, before any timestamp that a producer may insert.
    pub(crate) const START: Self = Self(Timestamp::from_micros(i64::MIN));
}

/// An optional timestamp as a parameter.
pub(crate) fn moment(now: Option<Timestamp>) -> Option<Moment> {
    now.map(Moment)
}

impl Type<Postgres> for Moment {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1184))
    }
}

impl PgHasArrayType for Moment {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1185))
    }
}

impl Encode<'_, Postgres> for Moment {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let micros = self.0.as_micros().saturating_sub(EPOCH_MICROS);
        Encode::<Postgres>::encode(micros, buffer)
    }
}

impl Decode<'_, Postgres> for Moment {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        match value.format() {
            PgValueFormat::Binary => {
                let bytes: [u8; 8] = value.as_bytes()?.try_into()?;
                let micros = i64::from_be_bytes(bytes).saturating_add(EPOCH_MICROS);
                Ok(Self(Timestamp::from_micros(micros)))
            }
            PgValueFormat::Text => {
                Err("a timestamp came as text; expected the binary format".into())
            }
        }
    }
}

/// Reads a column by index without the driver's type check: the statements declare their types.
pub(crate) fn get<'r, T>(row: &'r PgRow, index: usize) -> Result<T, sqlx::Error>
where
    T: Decode<'r, Postgres> + Type<Postgres>,
{
    row.try_get_unchecked(index)
}

/// Reads a nullable timestamp.
pub(crate) fn get_moment(row: &PgRow, index: usize) -> Result<Option<Timestamp>, sqlx::Error> {
    Ok(get::<Option<Moment>>(row, index)?.map(|moment| moment.0))
}

/// Reads a timestamp that is not null.
pub(crate) fn get_timestamp(row: &PgRow, index: usize) -> Result<Timestamp, sqlx::Error> {
    Ok(get::<Moment>(row, index)?.0)
}

/// Reads a counter; null counts as zero.
pub(crate) fn get_count(row: &PgRow, index: usize) -> Result<u32, sqlx::Error> {
    Ok(get::<Option<i32>>(row, index)?.map_or(0, |count| u32::try_from(count).unwrap_or(0)))
}

/// Reads a row count.
pub(crate) fn get_total(row: &PgRow, index: usize) -> Result<u64, sqlx::Error> {
    Ok(u64::try_from(get::<i64>(row, index)?).unwrap_or(0))
}

/// Error for a stored value that Tenure does not know.
pub(crate) fn unreadable(word: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("{word:?} is not a value that Tenure writes").into())
}
