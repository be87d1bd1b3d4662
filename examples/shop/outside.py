"""What is not Duly's: the stock, the payment provider, the mail. Here they are in memory; tests look at them."""

from dataclasses import dataclass, field


class CardRefusedError(Exception):
    """The bank says no: to ask again does not help."""


@dataclass
class Outside:
    """One of each."""

    stock: dict[str, int] = field(default_factory=dict)
    reserved: dict[str, dict[str, int]] = field(default_factory=dict)
    """By order."""
    charged: dict[str, int] = field(default_factory=dict)
    """By idempotency key: a key that is known is not charged again."""
    shipped: list[str] = field(default_factory=list)
    paid: list[str] = field(default_factory=list)
    """Days on which suppliers were paid."""
    prices: list[tuple[str, int]] = field(default_factory=list)
    """As they were published, the newest last."""
    mails: list[tuple[str, str]] = field(default_factory=list)
    """To whom, and what."""

    def reserve(self, order: str, items: dict[str, int]) -> None:
        """Take items out of the stock, once for each order."""
        if order not in self.reserved:
            self.reserved[order] = items
            for item, count in items.items():
                self.stock[item] -= count

    def release(self, order: str) -> None:
        """Put them back."""
        for item, count in self.reserved.pop(order, {}).items():
            self.stock[item] += count

    def charge(self, card: str, amount: int, key: str) -> None:
        """Charge a card."""
        if card == "expired":
            raise CardRefusedError(card)
        self.charged.setdefault(key, amount)


outside = Outside()
