//! A conversation: what is in the cache is not read again, and it answers as if it had been.

use super::{Said, kvarto, said, support};
use kvarto::backend::CpuBackend;
use kvarto::engine::Registry;
use kvarto::model::chat_template::ChatTemplate;
use kvarto::model::conversation::Conversation;
use kvarto::model::generate::{FinishReason, GenerateOptions, generate};
use kvarto::model::sampler::SamplerOptions;
use kvarto::model::tokenizer::Tokenizer;
use kvarto::model::{LoadOptions, Model};
use kvarto::profile::Profile;
use std::io::Write;
use std::process::Stdio;

fn greedy(max_tokens: usize) -> GenerateOptions {
    GenerateOptions {
        max_tokens,
        sampler: SamplerOptions { temperature: 0.0, ..SamplerOptions::default() },
        stop: Vec::new(),
    }
}

/// Types lines at `kvarto chat`, which reads them from a pipe.
fn chat(lines: &str, max_tokens: &str) -> Said {
    let arguments = ["chat", "--backend", "cpu", "--temperature", "0", "--max-tokens", max_tokens];
    let mut child = kvarto(&arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("it reads");
    said(child.wait_with_output().expect("it ends"))
}

#[test]
fn a_turn_reads_only_what_is_new_and_answers_the_same() {
    let Some(gguf) = support::model::open() else { return };
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let template = ChatTemplate::from_gguf(&gguf).unwrap();
    let backend = Box::new(CpuBackend::new(0).unwrap());
    // f32 pages: another order of the same sums is all that differs between one prefill and several.
    let profile = Profile::formats("f32", "f32");
    let load = LoadOptions { logit_rows: 1, ..LoadOptions::default() };
    let mut model = Model::load(&gguf, backend, profile, Registry::builtin(), &load).unwrap();
    let mut talk = Conversation::new(&mut model, None).unwrap();
    let mut reasons = Vec::new();
    for (turn, (text, most)) in
        [("Name a colour.", 9), ("Another one, please.", 60), ("And a fruit?", 9)].iter().enumerate()
    {
        let before = talk.tokens().len();
        let (mut said, never) = (String::new(), || false);
        let answer =
            talk.say(&mut model, &tokenizer, &template, text, &greedy(*most), |t| said.push_str(t), never).unwrap();
        reasons.push(answer.finish_reason);
        assert_eq!(said, answer.text);
        assert_eq!((talk.turn().kept, talk.turn().read_again), (before, 0), "turn {turn}");
        let fresh = model.engine().create().unwrap();
        let prompt = &talk.tokens()[..before + talk.turn().read];
        let again = generate(&mut model, &tokenizer, fresh, prompt, &greedy(*most), |_| {}, never).unwrap();
        assert_eq!(again.token_ids, answer.token_ids, "turn {turn}");
        model.engine().release(fresh).unwrap();
    }
    // Answers cut by the limit and ended by the model lead to different joints.
    assert!(reasons.contains(&FinishReason::Length) && reasons.contains(&FinishReason::Stop), "{reasons:?}");
    assert_eq!(talk.messages().count(), 6);

    let branch = talk.fork(&mut model).unwrap();
    let length = talk.tokens().len();
    // Cancelled before its first token, a turn leaves nothing behind.
    let mut polls = 0;
    let long = "word ".repeat(400);
    let cancelled = talk
        .say(
            &mut model,
            &tokenizer,
            &template,
            &long,
            &greedy(4),
            |_| {},
            || {
                polls += 1;
                polls > 1
            },
        )
        .unwrap();
    assert_eq!((cancelled.finish_reason, cancelled.token_ids.len()), (FinishReason::Cancelled, 0));
    assert_eq!((talk.tokens().len(), talk.messages().count()), (length, 6));
    let held =
        |model: &mut Model, talk: &Conversation| model.engine().lengths(talk.sequence()).unwrap().cached as usize;
    assert_eq!(held(&mut model, &talk), length);
    let refused = talk.say(&mut model, &tokenizer, &template, "a<|im_end|>", &greedy(4), |_| {}, || false);
    assert!(refused.unwrap_err().message().contains("<|im_end|>"));
    talk.reset(&mut model).unwrap();
    assert_eq!((held(&mut model, &talk), held(&mut model, &branch)), (0, length));
}

#[test]
fn commands_act_on_the_cache() {
    if support::model::path().is_none() {
        return;
    }
    let said =
        chat("Hello\n/fork\nWho are you?\n/stats\n/switch 1\n/stats\n/reset\n/stats\n/help\n/quit\nnever read\n", "12");
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(said.out.lines().filter(|l| !l.is_empty()).count(), 2, "{:?}", said.out);
    assert!(said.err.contains("chat 2 has the past of chat 1"), "{}", said.err);
    assert!(said.err.contains("chat      2 of 2, 4 messages"), "{}", said.err);
    assert!(said.err.contains("chat      1 of 2, 2 messages"), "{}", said.err);
    assert!(said.err.contains("chat      1 of 2, 0 messages, 0 tokens cached"), "{}", said.err);
    assert!(said.err.contains(" 0 of them again") && said.err.contains("/switch N"), "{}", said.err);
}

#[test]
fn what_cannot_be_done_is_an_error_from_a_pipe() {
    if support::model::path().is_none() {
        return;
    }
    for (line, word) in [("/nonsense", "/help"), ("/switch 3", "1 to 1"), ("/reset now", "no command")] {
        let said = chat(&format!("{line}\n"), "12");
        assert_eq!(said.code, Some(2), "{line}: {}", said.err);
        assert!(said.err.contains(word), "{line}: {}", said.err);
    }
    let said = chat("", "0");
    assert_eq!(said.code, Some(2));
    // More than the model has positions for is no fault: an answer takes what is left of them.
    let said = chat("hi\nhi\n", "8190");
    assert_eq!((said.code, said.out.lines().filter(|l| !l.is_empty()).count() > 1), (Some(0), true), "{}", said.err);
}
