//! Programs that train.

use super::frugal::Frugal;
use super::*;

pub(super) const PROGRAMS: &[Program] = &[
    ("losses in a list", "growth", losses),
    ("a sum of losses", "growth", sum_of_losses),
    ("a state that is carried on", "growth", carried_state),
    ("an average of the weights", "growth", average_of_weights),
    ("gradients that are kept", "kept_graph", gradients),
    ("the last loss", "kept_graph", last_loss),
    ("the last output", "kept_graph", last_output),
    ("two networks in turn", "kept_loss", adversaries),
    ("an actor and a critic", "kept_loss", actor_and_critic),
    ("the loss of the step before", NOTHING, previous_loss),
    ("AdamW of one layer", "optimizer_transient", |cured| adamw(&[512], cured)),
    ("AdamW of layers of many sizes", "optimizer_transient", |cured| adamw(&[64, 384, 128, 256], cured)),
    ("AdamW of equal layers", "optimizer_transient", |cured| adamw(&[320, 320, 320], cured)),
];

/// Ten programs of the kind `optimizer_transient`.
pub(super) fn certain() -> impl Iterator<Item = Sample> {
    const WIDTHS: [&[usize]; 10] = [
        &[512],
        &[256],
        &[384, 64],
        &[64, 384],
        &[256, 256],
        &[128, 256, 512],
        &[512, 256, 128],
        &[320, 96, 96, 96],
        &[448, 448],
        &[300, 200, 400],
    ];
    WIDTHS.into_iter().map(|widths| Box::new(move |cured| adamw(widths, cured)) as Sample)
}

const WIDTH: usize = 128;
const ROWS: usize = 1024;

fn losses(cured: bool) -> Result<Kept> {
    let net = Net::new(WIDTH)?;
    let mut optimizer = net.sgd()?;
    let (mut losses, mut numbers) = (Vec::new(), Vec::new());
    for _ in 0..16 {
        let loss = net.forward(&randn(ROWS, WIDTH)?)?.sqr()?.mean_all()?;
        optimizer.backward_step(&loss)?;
        if cured {
            numbers.push(loss.to_scalar::<f32>()?);
        } else {
            losses.push(loss);
        }
    }
    nothing()
}

fn sum_of_losses(cured: bool) -> Result<Kept> {
    let net = Net::new(WIDTH)?;
    let mut optimizer = net.sgd()?;
    let (mut sum, mut number) = (Tensor::zeros((), DType::F32, CPU)?, 0.);
    for _ in 0..16 {
        let loss = (net.forward(&randn(ROWS, WIDTH)?)? - 0.5)?.sqr()?.mean_all()?;
        optimizer.backward_step(&loss)?;
        if cured {
            number += loss.to_scalar::<f32>()?;
        } else {
            sum = (sum + loss)?;
        }
    }
    println!("{} {number}", sum.to_scalar::<f32>()?);
    nothing()
}

fn carried_state(cured: bool) -> Result<Kept> {
    let net = Net::new(WIDTH)?;
    let mut state = Tensor::zeros((ROWS, WIDTH), DType::F32, CPU)?;
    for _chunk in 0..20 {
        state = (net.forward(&state)? + randn(ROWS, WIDTH)?)?.tanh()?;
        if cured {
            state = state.detach();
        }
    }
    Ok(Box::new(state.sum_all()?.to_scalar::<f32>()?))
}

/// An exponential moving average beside training.
fn average_of_weights(cured: bool) -> Result<Kept> {
    let net = Net::new(256)?;
    let mut optimizer = net.sgd()?;
    let mut averages = net.weights.each_ref().map(Var::as_detached_tensor).to_vec();
    for _ in 0..24 {
        let loss = net.forward(&randn(64, 256)?)?.sqr()?.mean_all()?;
        optimizer.backward_step(&loss)?;
        for (average, weight) in averages.iter_mut().zip(&net.weights) {
            let weight = if cured { weight.as_detached_tensor() } else { weight.as_tensor().clone() };
            *average = ((&*average * 0.99)? + (weight * 0.01)?)?;
        }
    }
    nothing()
}

fn gradients(cured: bool) -> Result<Kept> {
    let net = Net::new(WIDTH)?;
    let gradients = net.forward(&randn(ROWS, WIDTH)?)?.sqr()?.mean_all()?.backward()?;
    let detached = |var: &Var| Some(gradients.get(var)?.detach());
    if cured {
        return Ok(Box::new(net.weights.iter().filter_map(detached).collect::<Vec<_>>()));
    }
    Ok(Box::new(gradients))
}

fn last_loss(cured: bool) -> Result<Kept> {
    let net = Net::new(WIDTH)?;
    let mut optimizer = net.sgd()?;
    let mut last = None;
    for _ in 0..3 {
        drop(last.take());
        let loss = net.forward(&randn(ROWS, WIDTH)?)?.sqr()?.mean_all()?;
        optimizer.backward_step(&loss)?;
        last = Some(loss);
    }
    let last = last.expect("three steps");
    if cured { Ok(Box::new(last.to_scalar::<f32>()?)) } else { Ok(Box::new(last)) }
}

fn last_output(cured: bool) -> Result<Kept> {
    let net = Net::new(WIDTH)?;
    let mut optimizer = net.sgd()?;
    let output = net.forward(&randn(ROWS, WIDTH)?)?;
    optimizer.backward_step(&output.sqr()?.mean_all()?)?;
    Ok(Box::new(if cured { output.detach() } else { output }))
}

/// A generator and a discriminator with an optimizer each.
fn adversaries(cured: bool) -> Result<Kept> {
    let (generator, discriminator) = (Net::new(WIDTH)?, Net::new(WIDTH)?);
    let (mut of_generator, mut of_discriminator) = (generator.sgd()?, discriminator.sgd()?);
    for _ in 0..6 {
        let fake = generator.forward(&randn(ROWS, WIDTH)?)?;
        let on_real = (discriminator.forward(&randn(ROWS, WIDTH)?)? - 1.)?.sqr()?.mean_all()?;
        let on_fake = discriminator.forward(&fake.detach())?.sqr()?.mean_all()?;
        let loss = (on_real + on_fake)?;
        of_discriminator.backward_step(&loss)?;
        let _kept = (!cured).then_some(loss);
        let loss = (discriminator.forward(&fake)? - 1.)?.sqr()?.mean_all()?;
        of_generator.backward_step(&loss)?;
    }
    nothing()
}

fn actor_and_critic(cured: bool) -> Result<Kept> {
    let (actor, critic) = (Net::new(WIDTH)?, Net::new(WIDTH)?);
    let (mut of_actor, mut of_critic) = (actor.sgd()?, critic.sgd()?);
    for _ in 0..6 {
        let states = randn(ROWS, WIDTH)?;
        let actor_loss = actor.forward(&states)?.mean_all()?;
        of_actor.backward_step(&actor_loss)?;
        let actor_loss = (!cured).then_some(actor_loss);
        let critic_loss = critic.forward(&states)?.sqr()?.mean_all()?;
        of_critic.backward_step(&critic_loss)?;
        drop(actor_loss);
    }
    nothing()
}

/// The old loss lives until the new one replaces it, which happens before the peak in the backward pass.
fn previous_loss(cured: bool) -> Result<Kept> {
    let net = Net::new(WIDTH)?;
    let mut optimizer = net.sgd()?;
    let mut loss = Tensor::zeros((), DType::F32, CPU)?;
    for _ in 0..8 {
        loss = net.forward(&randn(ROWS, WIDTH)?)?.sqr()?.mean_all()?;
        optimizer.backward_step(&loss)?;
        if cured {
            loss = loss.detach();
        }
    }
    Ok(Box::new(loss.to_scalar::<f32>()?))
}

/// Weights of these widths.
fn adamw(widths: &[usize], cured: bool) -> Result<Kept> {
    let weights: Vec<Var> =
        widths.iter().map(|width| Var::randn(0f32, 1., (*width, *width), CPU)).collect::<Result<_>>()?;
    enum Step {
        Candles(AdamW),
        Own(Frugal),
    }
    let mut optimizer = match cured {
        true => Step::Own(Frugal::new(weights.clone())?),
        false => Step::Candles(AdamW::new(weights.clone(), ParamsAdamW::default())?),
    };
    for _ in 0..3 {
        let mut loss = Tensor::zeros((), DType::F32, CPU)?;
        for weight in &weights {
            loss = (loss + weight.sqr()?.sum_all()?)?;
        }
        let gradients = loss.backward()?;
        drop(loss);
        match &mut optimizer {
            Step::Candles(optimizer) => optimizer.step(&gradients)?,
            Step::Own(optimizer) => optimizer.step(&gradients)?,
        }
    }
    nothing()
}
