//! Where exact quantities meet floats: weights, shares and decay.

use quintet_api::Quantity;

/// The quantity in units.
#[expect(clippy::cast_precision_loss, reason = "shares and weights are floats by definition")]
pub fn as_f64(quantity: Quantity) -> f64 {
    quantity.nanos() as f64 / 1e9
}

/// The product with a float, taken as the decimal it prints as, rounded down to the nano.
#[must_use]
pub fn times(quantity: Quantity, factor: f64) -> Quantity {
    let text = format!("{factor}");
    let (negative, digits) = text.strip_prefix('-').map_or((false, text.as_str()), |rest| (true, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let nanos = match format!("{whole}{fraction}").parse::<i128>() {
        Ok(digits) => {
            floor_mul_pow10(quantity.nanos(), if negative { -digits } else { digits }, fraction.len())
        }
        Err(_) if quantity.is_zero() => 0,
        Err(_) => i128::MAX,
    };
    Quantity::from_nanos(nanos, quantity.notation())
}

/// `floor(a × b / 10^shift)` without losing the product's upper half.
fn floor_mul_pow10(a: i128, b: i128, shift: usize) -> i128 {
    const STEP: usize = 18;
    const LOW: i128 = 1_000_000_000_000_000_000;
    let (high, low) = (a.div_euclid(LOW), a.rem_euclid(LOW));
    let (high, low) = (high.saturating_mul(b), low.saturating_mul(b));
    let power = |digits: usize| u32::try_from(digits).ok().and_then(|digits| 10i128.checked_pow(digits));
    if let Some(rest) = shift.checked_sub(STEP) {
        let sum = high.saturating_add(low.div_euclid(LOW));
        power(rest).map_or(if sum < 0 { -1 } else { 0 }, |power| sum.div_euclid(power))
    } else {
        let (up, down) = (power(STEP - shift).unwrap_or(1), power(shift).unwrap_or(1));
        high.saturating_mul(up).saturating_add(low.div_euclid(down))
    }
}
