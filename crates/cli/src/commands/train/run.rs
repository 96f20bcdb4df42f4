//! What `train` does: read, train, keep the model, report.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use lookalike::artifact::{self, Checkpoints, DirectoryKeeper, DirectoryLock, ModelError, check_destination};
use lookalike::data::Dataset;
use lookalike::data::write::{check_file, check_folder};
use lookalike::metrics::Metrics;
use lookalike::model::Model;
use lookalike::predict::{Evaluation, Predictor, Search};
use lookalike::train::{
    BestScore, Checkpoint, DataSize, Every, Observer, Outcome, RunPlan, TrainConfig, Trainer, Validation,
    run as run_training,
};
use lookalike_report::human;

use super::further::Further;
use super::keep::Kept;
use super::times::{Part, Times};
use super::{Settings, TrainArguments, describe};
use crate::exit::{INTERRUPTED, usage};
use crate::input::{self, Input};
use crate::output::{inform, inform_once};
use crate::progress::RunProgress;
use crate::ranks;

pub(super) fn train(arguments: &TrainArguments, base: Settings) -> anyhow::Result<ExitCode> {
    let say = |line: String| {
        if !arguments.quiet && ranks::is_first() {
            inform!("{line}");
        }
    };
    if arguments.resume && arguments.model.is_none() && arguments.checkpoint.is_none() {
        return Err(usage("--resume needs to know what to go on with: give --model or --checkpoint"));
    }
    check_arguments(arguments)?;
    let mut times = Times::start();
    if let (Some(directory), true, true) = (&arguments.model, arguments.resume, arguments.print_config) {
        let saved = artifact::load(directory)?;
        let text = saved.model.text.as_ref().map(|text| text.vectoriser.options().into());
        let settings = Settings { training: saved.record.config, text: text.unwrap_or(base.text) };
        return print_settings(arguments, settings);
    }
    if arguments.further.from.is_some() && ranks::all().size() > 1 {
        return Err(usage("--from is for one process: several can't go on with other data yet"));
    }
    if arguments.replaces_its_start() && (arguments.checkpoint.is_some() || arguments.resume) {
        return Err(usage(
            "--from and --model are the same directory: to go on after a break, the model that was there \
             before must stay; choose another --model",
        ));
    }
    let checkpoints =
        arguments.checkpoint.as_ref().map(|folder| Checkpoints::new(folder, arguments.keep.get()));
    let mut _locks = [None, None];
    if !arguments.print_config && ranks::is_first() {
        check_outputs(arguments)?;
        let written = [&arguments.model, &arguments.checkpoint];
        for (lock, directory) in _locks.iter_mut().zip(written) {
            *lock = directory.as_deref().map(DirectoryLock::take).transpose()?;
        }
    }
    if !arguments.print_config {
        check_shared(arguments)?;
    }
    let previous = previous(arguments, checkpoints.as_ref(), &say)?;
    let previous = previous.map(|checkpoint| with_settings(arguments, checkpoint)).transpose()?;
    if previous.is_none() && arguments.further.from.is_none() {
        check_settings(arguments, &base)?;
    }
    if previous.is_some() && arguments.text.any() {
        return Err(usage("--resume goes on with the model's features: they can't be changed"));
    }
    let further =
        arguments.further.from.as_deref().map(|model| Further::read(arguments, model)).transpose()?;
    further.iter().flat_map(Further::describe).for_each(&say);
    let (earlier, mut data) = match (further, &previous) {
        (Some(Further { start, data }), _) => (Some(start), data),
        (None, Some(previous)) => {
            let (file, model) = (&arguments.train, &previous.model);
            (None, input::for_resuming(file, model, &arguments.read, &arguments.weights)?)
        }
        (None, None) => {
            let text = base.text.options();
            (None, input::for_training(&arguments.train, &text, &arguments.read, &arguments.weights)?)
        }
    };
    // What a trainer starts from (sparse weights, first tables) is training already.
    let (path, seconds) = (arguments.train.display(), human::seconds(times.enter(Part::Training)));
    let read = if data.is_text() { "read and vectorised" } else { "read" };
    say(format!("{read} {path} in {seconds}"));
    data.understood().iter().for_each(|line| say(line.clone()));
    let learnt = data.take_learnt();
    let mut trainer = match (earlier, previous) {
        (_, Some(checkpoint)) => {
            Trainer::resume_on(ranks::all(), checkpoint, data.view(), arguments.machine.cpu()?)?
        }
        (Some(start), None) => {
            let mut trainer = start.trainer(data.view(), arguments.machine.cpu()?)?;
            (trainer.model.text, trainer.model.names) = learnt;
            trainer
        }
        (None, None) => {
            let settings = choose_settings(arguments, base, &data, &say)?;
            if arguments.print_config {
                return print_settings(arguments, settings);
            }
            let mut trainer = start(arguments, settings, &data)?;
            (trainer.model.text, trainer.model.names) = learnt;
            trainer
        }
    };
    for warning in trainer.state.config.warnings() {
        inform_once!("note: {warning}");
    }
    describe::start(&trainer, &data.view(), &say);
    // Whoever was killed after the last checkpoint has not saved the model yet.
    if trainer.is_done() && arguments.checkpoint.is_none() {
        if !trainer.lacks_index() {
            let epochs = human::counted(trainer.state.progress.epoch as u64, "epoch");
            say(format!("nothing is left to do: the model has had its {epochs}; ask for more with --epochs"));
            return Ok(ExitCode::SUCCESS);
        }
        say("training is done; the model gets the search index that several ranks do not make".into());
    }
    times.enter(Part::Reading);
    let test = open_other(arguments.test.as_deref(), &trainer, arguments)?;
    let valid = open_other(arguments.valid.as_deref(), &trainer, arguments)?;
    if let (Some(path), Some(valid)) = (&arguments.valid, &valid) {
        check_labels(path, valid)?;
    }
    let inputs = (test.as_ref(), valid.as_ref());
    let mut progress = progress(arguments, &trainer)?;
    let run = (&mut trainer, &mut progress);
    let (outcome, saved) = train_and_save(arguments, run, checkpoints, inputs, &mut times, &say)?;
    times.enter(Part::Evaluation);
    if let Some(test) = &test
        && let Some(evaluation) = measure_saved(arguments, &trainer, saved, test)?
    {
        if valid.is_none() {
            progress.on_evaluation(&trainer, &evaluation, false);
        }
        crate::commands::evaluate::print(&evaluation, test.unknown_labels_total(), false)?;
    }
    say(times.end());
    Ok(if outcome == Outcome::Stopped { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// What training goes on with, if it does.
fn previous(
    arguments: &TrainArguments,
    checkpoints: Option<&Checkpoints>,
    say: &dyn Fn(String),
) -> anyhow::Result<Option<Checkpoint>> {
    let Some(checkpoints) = checkpoints else {
        let directory = arguments.model.as_ref().filter(|_| arguments.resume);
        let load = |directory| artifact::load_checkpoint_on(ranks::all(), directory);
        return Ok(directory.map(|directory| load(directory)).transpose()?);
    };
    if !arguments.resume && ranks::is_first() && !checkpoints.is_empty() {
        return Err(usage(
            "--checkpoint has checkpoints of another run: go on with --resume, or choose another",
        ));
    }
    let mut tell = |error: &ModelError| {
        if ranks::is_first() {
            inform!("warning: {error}; going on with the checkpoint before it");
        }
    };
    let newest = checkpoints.newest(&ranks::all(), &mut tell)?;
    if arguments.resume && newest.is_none() {
        say("no checkpoint yet: training starts from the beginning".into());
    }
    Ok(newest)
}

/// A time as the user writes it.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "expected a number of seconds, 0 or more".into())
}

/// A period as the user writes it.
pub(super) fn period(text: &str) -> Result<Every, String> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().unwrap_or(0.0);
    let every = match unit {
        "s" => Every::Seconds(number),
        "m" => Every::Seconds(60.0 * number),
        "h" => Every::Seconds(3600.0 * number),
        "step" | "steps" if number.fract() == 0.0 => Every::Iterations(number as u64),
        "epoch" | "epochs" => Every::Epochs(number),
        _ => Every::Seconds(0.0),
    };
    match every {
        Every::Iterations(0) | Every::Seconds(0.0) | Every::Epochs(0.0) => {
            Err("expected a positive number and its unit: 30s, 10m, 2h, 1000steps or 1epoch".into())
        }
        every => Ok(every),
    }
}

/// The settings with what flags override, and nothing else.
pub(super) fn print_settings(arguments: &TrainArguments, mut settings: Settings) -> anyhow::Result<ExitCode> {
    arguments.settings.apply(&mut settings.training);
    settings.training.check_values()?;
    if !ranks::is_first() {
        return Ok(ExitCode::SUCCESS);
    }
    write!(std::io::stdout(), "{}", settings.to_toml()?)?;
    Ok(ExitCode::SUCCESS)
}

/// What the data decides, where nothing else was asked for.
fn choose_settings(
    arguments: &TrainArguments,
    mut settings: Settings,
    data: &Input,
    say: &dyn Fn(String),
) -> anyhow::Result<Settings> {
    if arguments.is_auto() {
        let (chosen, why) = TrainConfig::auto((&data.view()).into());
        let chosen = Settings { training: chosen, ..settings.clone() };
        settings.training = chosen.with(arguments.config.as_deref())?.training;
        why.into_iter().for_each(say);
    }
    Ok(settings)
}

fn start<'a>(
    arguments: &TrainArguments,
    mut settings: Settings,
    data: &'a Input,
) -> anyhow::Result<Trainer<'a>> {
    arguments.settings.apply(&mut settings.training);
    Ok(Trainer::new_on(ranks::all(), settings.training, data.view(), arguments.machine.cpu()?)?)
}

/// A checkpoint with what flags override, if it can go on so.
fn with_settings(arguments: &TrainArguments, mut checkpoint: Checkpoint) -> anyhow::Result<Checkpoint> {
    let had_sparse_part = checkpoint.state.config.sparse.is_some();
    arguments.settings.apply(&mut checkpoint.state.config);
    if arguments.checkpoint.is_some() && !had_sparse_part {
        // The same command line goes on with a run that has dropped it.
        checkpoint.state.config.sparse = None;
    }
    checkpoint.state.config.check_values()?;
    checkpoint.state.config.check_model(&checkpoint.model)?;
    Ok(checkpoint)
}

/// What means nothing must show before data is read.
fn check_arguments(arguments: &TrainArguments) -> anyhow::Result<()> {
    arguments.machine.cpu()?;
    Metrics::new(&arguments.metrics.options(), None)?;
    let others = [&arguments.test, &arguments.valid].into_iter().flatten();
    for path in others.chain(&arguments.further.rehearse_from) {
        input::check_file(path)?;
    }
    Ok(())
}

/// The same of the settings of a new model; those of one that goes on are checked with it.
fn check_settings(arguments: &TrainArguments, base: &Settings) -> anyhow::Result<()> {
    let mut config = base.training.clone();
    if arguments.is_auto() {
        // Of any data at all: which parts there are to set.
        let any = DataSize { examples: 1, classes: 2, feature_values: 1, labels: 1 };
        let chosen = Settings { training: TrainConfig::auto(any).0, ..base.clone() };
        config = chosen.with(arguments.config.as_deref())?.training;
    }
    arguments.settings.apply(&mut config);
    Ok(config.check_values()?)
}

/// What can't be written must show before hours of training.
fn check_outputs(arguments: &TrainArguments) -> anyhow::Result<()> {
    if let Some(directory) = &arguments.model {
        check_destination(directory)?;
        if artifact::is_model(directory) && !arguments.resume && !arguments.overwrite {
            return Err(usage(format!(
                "{} holds a model: --resume goes on with it, --overwrite replaces it",
                directory.display()
            )));
        }
    }
    if let Some(folder) = &arguments.checkpoint {
        check_folder(folder).context("--checkpoint")?;
    }
    if let Some(file) = &arguments.log {
        check_file(file).context("--log")?;
    }
    if let Some(folder) = &arguments.tensorboard {
        check_folder(folder).context("--tensorboard")?;
    }
    Ok(())
}

/// Ranks write directories together, so all must see what the first one has locked.
fn check_shared(arguments: &TrainArguments) -> anyhow::Result<()> {
    let all = ranks::all();
    if all.size() == 1 {
        return Ok(());
    }
    all.barrier();
    let written = [&arguments.model, &arguments.checkpoint];
    for directory in written.into_iter().flatten() {
        if !DirectoryLock::is_taken(directory) {
            return Err(ModelError::NotShared { directory: directory.into() }.into());
        }
    }
    Ok(())
}

/// Examples without labels choose nothing.
fn check_labels(path: &Path, valid: &Input) -> anyhow::Result<()> {
    let examples = valid.view();
    let has_label = |i: usize| !examples.labels(i).is_empty() || valid.unknown_labels(i) > 0;
    if (0..examples.len()).any(has_label) {
        return Ok(());
    }
    let (path, count) = (path.display(), human::count(examples.len() as u64));
    Err(usage(format!(
        "{path}: none of its {count} examples has a label, so --valid can't choose the best model"
    )))
}

fn open_other(
    path: Option<&Path>,
    trainer: &Trainer<'_>,
    arguments: &TrainArguments,
) -> anyhow::Result<Option<Input>> {
    path.map(|path| input::for_model(path, &trainer.model, &arguments.read)).transpose()
}

fn progress(arguments: &TrainArguments, trainer: &Trainer<'_>) -> anyhow::Result<RunProgress> {
    let is_first = ranks::is_first();
    let mut progress = RunProgress::new(trainer.planned_steps(), arguments.quiet || !is_first);
    if !is_first {
        return Ok(progress);
    }
    if let Some(path) = &arguments.log {
        progress = progress.with_log(path, arguments.resume)?;
    }
    if let Some(folder) = &arguments.tensorboard {
        progress = progress.with_tensorboard(folder)?;
    }
    Ok(progress)
}

/// Where the model is that was saved, or would have been.
enum Saved {
    /// It is the trainer's.
    Trainer,
    /// An earlier one was better, and is here: of several ranks each has its own classes.
    Loaded(Box<Model>),
}

/// Runs the loop and saves.
fn train_and_save(
    arguments: &TrainArguments,
    (trainer, progress): (&mut Trainer<'_>, &mut RunProgress),
    checkpoints: Option<Checkpoints>,
    (test, valid): (Option<&Input>, Option<&Input>),
    times: &mut Times,
    say: &dyn Fn(String),
) -> anyhow::Result<(Outcome, Saved)> {
    let watched = valid.or(test);
    // What only tells how training goes need not be exact; the end is.
    let most = if valid.is_some() { 0 } else { arguments.eval_examples };
    let sample = watched.and_then(|input| Sample::of(input, most));
    if let (Some(sample), Some(input)) = (&sample, watched) {
        let (some, all) = (sample.places.len(), input.view().len());
        let (some, all) = (human::count(some as u64), human::count(all as u64));
        say(format!("while training, metrics are of {some} of {all} test examples (--eval-examples 0: all)"));
    }
    if let (Some(test), Some(watched)) = (test, watched) {
        let looked_at = sample.as_ref().map_or(watched.view().len(), |sample| sample.places.len());
        progress.measures_at_end(test.view().len() as f64 / looked_at.max(1) as f64);
    }
    let place = |i: usize| sample.as_ref().map_or(i, |sample| sample.places[i]);
    let unknown = |i: usize| watched.map_or(0, |input| input.unknown_labels(place(i)));
    let validation = watched.map(|input| Validation {
        examples: sample.as_ref().map_or_else(|| input.view(), |sample| sample.data.view()),
        unknown_labels: &unknown,
        every: match arguments.eval_iterations {
            Some(steps) => Every::Iterations(steps.get()),
            None => Every::Epochs(arguments.eval_epochs.get().into()),
        },
        metrics: arguments.metrics.options(),
        patience: arguments.patience.map(usize::from),
    });
    times.enter(Part::Training);
    let trained_before = trainer.state.progress.train_seconds;
    let plan = RunPlan {
        validation,
        time_limit: arguments.time_limit,
        checkpoint_every: checkpoints.as_ref().map(|_| arguments.checkpoint_every),
        detect_anomaly: arguments.detect_anomaly,
        // The test file is measured once the model is saved, all of it.
        leaves_end: valid.is_none(),
    };
    let had_sparse_part = trainer.model.sparse.is_some();
    let model = arguments.model.as_ref();
    let model = model.map(|path| DirectoryKeeper::new(path, !arguments.without_training_state));
    let mut kept = Kept { model, keeps_best: valid.is_some(), checkpoints, seconds: 0.0 };
    if let (Some(model), Some(valid)) = (&mut kept.model, valid) {
        if arguments.resume {
            find_best(arguments, trainer, model, valid)?;
        }
        progress.tells_best();
    }
    let result = run_training(trainer, &plan, &mut kept, progress);
    progress.finish();
    let written = kept.checkpoints.as_mut().map_or(Ok(()), Checkpoints::wait);
    let outcome = result?;
    let seconds = times.enter(Part::Saving);
    let trained = trainer.state.progress.train_seconds - trained_before;
    times.moved(Part::Training, Part::Evaluation, (seconds - trained - kept.seconds).max(0.0));
    times.moved(Part::Training, Part::Saving, kept.seconds);
    describe::end(trainer, outcome, had_sparse_part, say);
    progress.wire().into_iter().for_each(say);
    let saved = kept.model.map(|model| save(trainer, model, say)).transpose()?;
    written.context("cannot write the last checkpoint")?;
    Ok((outcome, saved.unwrap_or(Saved::Trainer)))
}

/// The best model of a run that goes on is in its directory.
fn find_best(
    arguments: &TrainArguments,
    trainer: &mut Trainer<'_>,
    model: &mut DirectoryKeeper,
    valid: &Input,
) -> anyhow::Result<()> {
    if arguments.checkpoint.is_none() {
        // What goes on is itself the best so far.
        trainer.state.best.value = measure(arguments, trainer, valid)?.first();
        model.holds_best();
    } else if trainer.state.best.value.is_some() {
        match artifact::load_on(ranks::all(), model.directory()) {
            Ok(_) => model.holds_best(),
            // Somebody removed it: the next best one takes its place.
            Err(ModelError::NotAModel { .. }) => trainer.state.best = BestScore::default(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Some of the examples of a file, evenly spread.
struct Sample {
    places: Vec<usize>,
    data: Dataset,
}

impl Sample {
    /// At most `most` examples; none if that is all of them, or 0.
    fn of(input: &Input, most: usize) -> Option<Self> {
        let all = input.view().len();
        (most > 0 && all > most).then(|| {
            let places: Vec<usize> = (0..most).map(|i| i * all / most).collect();
            Self { data: Dataset::select(input.view(), &places), places }
        })
    }
}

/// Saves the model, unless the best one is there already.
fn save(trainer: &Trainer<'_>, mut keeper: DirectoryKeeper, say: &dyn Fn(String)) -> anyhow::Result<Saved> {
    let directory = keeper.directory().display().to_string();
    if !keeper.has_best() {
        keeper.save(trainer).with_context(|| format!("cannot save the model to {directory}"))?;
        say(format!("saved to {directory}"));
        return Ok(Saved::Trainer);
    }
    let saved = artifact::load_on(ranks::all(), keeper.directory())?;
    say(match keeper.found_better() {
        true => {
            format!("saved to {directory}: the best on --valid, of step {}", saved.record.progress.iteration)
        }
        false => format!("{directory} was the best on --valid and is left as it is"),
    });
    Ok(Saved::Loaded(Box::new(saved.model)))
}

/// Measures the model as it is now, on all ranks.
fn measure(arguments: &TrainArguments, trainer: &Trainer<'_>, input: &Input) -> anyhow::Result<Evaluation> {
    let unknown = |i: usize| input.unknown_labels(i);
    Ok(trainer.evaluate(&input.view(), &unknown, &arguments.metrics.options())?)
}

/// Measures the model that was saved; the first rank tells.
fn measure_saved(
    arguments: &TrainArguments,
    trainer: &Trainer<'_>,
    saved: Saved,
    input: &Input,
) -> anyhow::Result<Option<Evaluation>> {
    let unknown = |i: usize| input.unknown_labels(i);
    let evaluation = match saved {
        Saved::Trainer => measure(arguments, trainer, input)?,
        Saved::Loaded(model) => {
            let predictor = Predictor::on(trainer.shard(), &*model, trainer.cpu());
            predictor.evaluate(&input.view(), &unknown, &arguments.metrics.options(), Search::Exact)?
        }
    };
    Ok(Some(evaluation).filter(|_| ranks::is_first()))
}
