"""E-mail by SMTP. The client of the standard library blocks, so it runs in a thread."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any

from nerve.core.nodes.daemon_threads import DAEMON_THREADS
from nerve.notifications.delivery import ATTEMPT_TIMEOUT_S, DeliveryFailed, SecretReader
from nerve.notifications.http_channels import ID_HEADER
from nerve.notifications.messages import MessageWriter, NotifyMessage

DEFAULT_PORTS = {"starttls": 587, "tls": 465, "none": 25}


class EmailChannel:
    """A mail server, and the people that it sends messages to."""

    def __init__(self, settings: Mapping[str, Any], secrets: SecretReader, writer: MessageWriter) -> None:
        self._settings, self._secrets, self._writer = settings, secrets, writer
        self._security: str = settings.get("security", "starttls")

    async def send(self, message: NotifyMessage) -> None:
        await DAEMON_THREADS.run(self._send_mail, self.make_mail(message), lambda: None)

    def make_mail(self, message: NotifyMessage) -> EmailMessage:
        """Return a message as a mail. Its id is the same for every attempt."""
        from datetime import UTC, datetime

        text = self._writer.write(message)
        mail = EmailMessage()
        mail["Subject"] = text.title
        mail["From"] = self._settings["from"]
        mail["To"] = ", ".join(self._settings["to"])
        mail["Date"] = format_datetime(datetime.fromtimestamp(message.created_at, UTC))
        mail["Message-ID"] = f"<{message.id}@{self._settings['from'].rpartition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail[ID_HEADER] = message.id
        mail.set_content(text.body + "\n")
        return mail

    def _send_mail(self, mail: EmailMessage) -> None:
        host: str = self._settings["host"]
        port: int = self._settings.get("port", DEFAULT_PORTS[self._security])
        password = self._settings.get("password")
        secret = None if password is None else self._secrets.read(password)
        try:
            with self._connect(host, port) as client:
                if self._security == "starttls":
                    client.starttls(context=ssl.create_default_context())
                if secret is not None:
                    client.login(self._settings.get("user", self._settings["from"]), secret)
                client.send_message(mail)
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            raise DeliveryFailed(
                f"{host} refused all recipients ({codes[0]})", is_final=all(code >= 500 for code in codes)
            ) from None
        except smtplib.SMTPResponseException as error:
            raise DeliveryFailed(
                f"{host} answered {error.smtp_code}", is_final=500 <= error.smtp_code < 600
            ) from None
        except smtplib.SMTPNotSupportedError:
            raise DeliveryFailed(f"{host} does not support '{self._security}'", is_final=True) from None
        except (OSError, smtplib.SMTPException) as error:
            raise DeliveryFailed(f"The connection to {host}:{port} failed: {type(error).__name__}") from None

    def _connect(self, host: str, port: int) -> smtplib.SMTP:
        if self._security == "tls":
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(host, port, timeout=ATTEMPT_TIMEOUT_S, context=context)
        return smtplib.SMTP(host, port, timeout=ATTEMPT_TIMEOUT_S)

    async def close(self) -> None:
        pass

    def describe(self) -> str:
        return f"{', '.join(self._settings['to'])} by {self._settings['host']}"

    def find_problem(self) -> str:
        return self._secrets.find_problem(self._settings.get("password"))
