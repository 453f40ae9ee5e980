//! Chat templates: from messages to the text a model was trained on.
//!
//! The template is the file's own, run as Jinja the way `transformers` runs it. A file without one is an error:
//! a guessed template gives worse answers and no hint why.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error as JinjaError, ErrorKind as JinjaKind, State, Value, context};

use super::gguf::Gguf;
use crate::error::{Error, ErrorKind, Result};

const KEY: &str = "tokenizer.chat_template";
/// Steps a template may take: a hundred times what long chats need, and still well under a second.
const FUEL: u64 = 10_000_000;

/// One message of a chat.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`; templates may know more.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// A message of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Message { role: role.into(), content: content.into() }
    }
}

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// Compiles the file's `tokenizer.chat_template`; its absence, or a fault in it, is a `File` error.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self> {
        let source = gguf.optional::<&str>(KEY)?.filter(|source| !source.trim().is_empty());
        let source = source.ok_or_else(|| {
            Error::new(
                ErrorKind::File,
                format!("key `{KEY}` is missing: this file says nothing about how to write a chat"),
                "use an instruction-tuned model's file, or `generate` with a prompt of your own",
            )
        })?;
        let tokens = gguf.optional::<&[String]>("tokenizer.ggml.tokens")?.unwrap_or(&[]);
        let text = |name: &str| -> Result<String> {
            let id = gguf.optional::<u32>(&format!("tokenizer.ggml.{name}_token_id"))?;
            Ok(id.and_then(|id| tokens.get(id as usize)).cloned().unwrap_or_default())
        };
        Self::new(source, text("bos")?, text("eos")?)
    }

    /// Compiles `source`; `bos` and `eos` are what it sees as `bos_token` and `eos_token`.
    pub fn new(source: &str, bos: impl Into<String>, eos: impl Into<String>) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|e| fault("cannot be compiled", &e))?);
        // The output is a prompt, not a web page.
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<Value, JinjaError> {
            Err(JinjaError::new(JinjaKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", strftime_now);
        environment.add_filter("tojson", to_json);
        environment.add_template_owned(KEY, source.to_owned()).map_err(|e| fault("cannot be compiled", &e))?;
        Ok(ChatTemplate { environment, bos: bos.into(), eos: eos.into() })
    }

    /// The prompt for `messages`, ready for `encode` with special tokens parsed. With `add_generation_prompt` it
    /// ends where the assistant's answer begins. What the template raises is a `Usage` error with its words.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        let messages: Vec<Value> = messages
            .iter()
            .map(|message| context! { role => message.role.as_str(), content => message.content.as_str() })
            .collect();
        let template = self.environment.get_template(KEY).map_err(|e| fault("cannot be used", &e))?;
        let values = context! {
            messages => messages,
            add_generation_prompt => add_generation_prompt,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        template.render(values).map_err(|e| match e.kind() {
            JinjaKind::InvalidOperation => Error::new(
                ErrorKind::Usage,
                format!("the chat template refuses these messages: {}", e.detail().unwrap_or("no reason given")),
                "change the messages' roles or order",
            ),
            _ => fault("failed", &e),
        })
    }
}

fn fault(what: &str, error: &JinjaError) -> Error {
    Error::new(
        ErrorKind::File,
        format!("key `{KEY}` {what}: {error}"),
        "use another file of this model, or `generate` with a prompt of your own",
    )
}

/// The time now in UTC, in `strftime` form. (UTC, so that a prompt does not depend on the machine's zone.)
fn strftime_now(state: &State, format: String) -> Result<String, JinjaError> {
    let format = Kwargs::from_iter([("format", Value::from(format))]);
    minijinja_contrib::filters::datetimeformat(state, minijinja_contrib::globals::now(), format)
}

/// JSON as Python's `json.dumps(ensure_ascii=False)` writes it: minijinja's, less the escapes for HTML.
fn to_json(value: &Value, indent: Option<Value>, rest: Kwargs) -> Result<Value, JinjaError> {
    let json = minijinja::filters::tojson(value, indent, rest)?;
    let json = json.as_str().unwrap_or_default();
    let mut out = String::with_capacity(json.len());
    let mut left = json;
    while let Some(at) = left.find('\\') {
        out.push_str(&left[..at]);
        let escape = &left[at..];
        let plain = [("\\u003c", '<'), ("\\u003e", '>'), ("\\u0026", '&'), ("\\u0027", '\'')];
        if let Some((code, c)) = plain.iter().find(|(code, _)| escape.starts_with(code)) {
            out.push(*c);
            left = &escape[code.len()..];
        } else {
            // A backslash and the character it escapes stay together, so `\\u003c` is not taken for an escape.
            let end = escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end);
            out.push_str(&escape[..end]);
            left = &escape[end..];
        }
    }
    out.push_str(left);
    Ok(Value::from(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str, messages: &[Message]) -> Result<String> {
        ChatTemplate::new(source, "<s>", "</s>")?.render(messages, true)
    }

    #[test]
    fn writes_a_chat() {
        let source = "{{ bos_token }}{% for m in messages %}\n  {% if m.role == 'user' %}\n[{{ m['content'].strip() }}]\n  {% endif %}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}";
        let text = render(source, &[Message::new("user", " hi <b> "), Message::new("assistant", "ho")]).unwrap();
        assert_eq!(text, "<s>[hi <b>]\n>");
    }

    #[test]
    fn what_a_template_raises_reaches_the_user() {
        let error = render("{{ raise_exception('roles must alternate') }}", &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.message().contains("roles must alternate"), "{error}");
    }

    #[test]
    fn python_and_huggingface_helpers() {
        let content = "a<b> \\u003c \"q\" é";
        let text = render("{{ messages[0].content|tojson }}", &[Message::new("user", content)]).unwrap();
        assert_eq!(text, r#""a<b> \\u003c \"q\" é""#);
        let year = render("{{ strftime_now('%Y') }}", &[]).unwrap();
        assert!(year.len() == 4 && year.as_str() >= "2024", "{year}");
        let text = render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", &[]);
        assert_eq!(text.unwrap(), "01");
    }

    #[test]
    fn faults_and_endless_work_are_errors() {
        assert_eq!(render("{% for %}", &[]).unwrap_err().kind(), ErrorKind::File);
        let nested = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
        assert_eq!(render(nested, &[]).unwrap_err().kind(), ErrorKind::File);
    }
}
